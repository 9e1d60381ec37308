"""JUnit XML, counted while it is read. Nothing is built from it and nothing is fetched for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from ratchet.judges.reports import BadReport

_NAMES = 5
_NAME = 200
# What a single test may claim to have taken; a sum of such claims is still a number.
_LONGEST = 1e9


@dataclass(slots=True)
class TestCounts:
    """How many tests there were and what became of them. `names` are all of them, without parameters; `broken` the
    first that failed, and `failed` all that did."""

    # pytest takes every class called Test… for a test.
    __test__ = False

    tests: int = 0
    failures: int = 0
    errors: int = 0
    skipped: int = 0
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def measurements(self) -> dict[str, float]:
        return {
            "tests": self.tests,
            "failures": self.failures,
            "errors": self.errors,
            "skipped": self.skipped,
            "duration_seconds": self.seconds,
        }


def count_tests(content: bytes, name: str) -> TestCounts:
    """What a JUnit report says. Raises `BadReport` for anything else.

    A report needs no document type. One that has it wants entities, which can grow without end or name files of ours.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError, UnicodeError) as error:
        raise BadReport(f"the report {name} is not XML: {error}") from None
    if reader.claimed > reader.counts.failures + reader.counts.errors:
        raise BadReport(
            f"the report {name} contradicts itself: it claims {reader.claimed} failures and shows fewer"
        )
    return reader.counts


class _Reader:
    """A test may fail in several ways; it is counted once, by the worst."""

    def __init__(self) -> None:
        self.counts = TestCounts()
        self.claimed = 0
        self._depth = 0
        self._test: str | None = None
        self._marks: set[str] = set()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and tag not in ("testsuites", "testsuite"):
            raise BadReport(f"a JUnit report begins with testsuites, not with {tag[:_NAME]!r}")
        if tag == "testcase":
            self._test = f"{attributes.get('classname', '')}.{attributes.get('name', '')}".strip(".")[:_NAME]
            self._marks.clear()
            self.counts.seconds += _seconds(attributes.get("time"))
        elif tag in ("failure", "error", "skipped"):
            self._marks.add(tag)
            if self._test is None:
                self._count("outside of any test")
        elif tag == "testsuite":
            self.claimed = max(
                self.claimed, sum(_whole(attributes.get(each)) for each in ("failures", "errors"))
            )

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "testcase" and self._test is not None:
            self.counts.tests += 1
            self.counts.names.add(self._test.partition("[")[0])
            self._count(self._test)
            self._test = None

    def _count(self, name: str) -> None:
        if "error" in self._marks:
            self.counts.errors += 1
        elif "failure" in self._marks:
            self.counts.failures += 1
        elif "skipped" in self._marks:
            self.counts.skipped += 1
        if self._marks & {"error", "failure"}:
            self.counts.failed.add(name)
            if len(self.counts.broken) < _NAMES:
                self.counts.broken.append(name)
        self._marks.clear()


def _refuse(name: str, *_: object) -> None:
    raise BadReport(
        f"the report declares the document type {name[:_NAME]!r}, which a JUnit report does not need"
    )


def _seconds(text: str | None) -> float:
    try:
        seconds = float((text or "0").replace(",", ""))
    except ValueError:
        return 0.0
    return seconds if 0 < seconds < _LONGEST else 0.0


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0
