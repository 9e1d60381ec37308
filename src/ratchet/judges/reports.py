"""Reports that a command promised to write: opened with care, since the candidate's code may have written them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from ratchet.kernel import shortened

MAX_REPORT_BYTES = 32 * 1024 * 1024
_LARGEST = 1e150


class BadReport(ValueError):
    """A promised report is absent or cannot be read as what it should be."""


@dataclass(frozen=True, slots=True)
class JsonReport:
    """A JSON file and the numbers to take from it, by dotted path: `{"coverage": "totals.percent_covered"}`."""

    file: str
    numbers: Mapping[str, str] = field(default_factory=dict)


def read_report(directory: Path, name: str) -> bytes:
    """The report `name` below `directory`. Raises `BadReport`.

    No part of its path may be a link, which could lead to a file that only Ratchet can read, and it must be a plain
    file: opening a pipe would wait for ever.
    """
    try:
        descriptor = _opened(directory, Path(name).parts)
    except OSError as error:
        raise BadReport(f"the report {name} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise BadReport(f"the report {name} is not a plain file")
        if found.st_size > MAX_REPORT_BYTES:
            raise BadReport(
                f"the report {name} has {found.st_size} bytes; at most {MAX_REPORT_BYTES} are read"
            )
        return file.read(MAX_REPORT_BYTES)


def json_numbers(content: bytes, report: JsonReport) -> dict[str, float]:
    """The numbers that `report` promises, from its content. Raises `BadReport`."""
    document = strict_json(content, report.file)
    return {name: _number(document, path, report.file) for name, path in report.numbers.items()}


def strict_json(content: bytes, name: str) -> Any:
    """One JSON document as the standard has it: no NaN, no name twice in an object, nothing behind it."""
    try:
        return json.loads(content, parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{name} is not JSON: {str(error)[:200]}") from None


def finite(value: object) -> float | None:
    """`value` as a number that can be compared, if it is one: no NaN, and not so large that its square is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        return None
    return float(value)


def _opened(directory: Path, parts: tuple[str, ...]) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    held = os.open(directory, flags | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, flags | os.O_DIRECTORY, dir_fd=held)
            os.close(held)
            held = deeper
        return os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=held)
    finally:
        os.close(held)


def _number(document: Any, path: str, name: str) -> float:
    value = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    number = finite(value)
    if number is None:
        raise BadReport(f"the report {name} has no finite number at {path}")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


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


_FEEDBACK_LENGTH = 4000
_ARTIFACT_LENGTH = 2000
_MOST_ARTIFACTS = 8


@dataclass(frozen=True, slots=True)
class Feedback:
    """What an evaluator says to those who improve the candidate, beside the score, and the end of the trial's log."""

    text: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    log: str = ""

    def record(self) -> dict[str, Any]:
        """As JSON has it, short enough for a row; nothing of what is empty."""
        said = {"feedback": self.text, "artifacts": dict(self.artifacts), "log": self.log}
        return {name: value for name, value in said.items() if value}

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Feedback:
        """`feedback` and `artifacts` of an answer. What is no text is written as JSON: none of it decides anything."""
        found = answer.get("artifacts")
        named = list(found.items())[:_MOST_ARTIFACTS] if isinstance(found, Mapping) else []
        artifacts = {str(name)[:100]: _words(value, _ARTIFACT_LENGTH) for name, value in named}
        return cls(_words(answer.get("feedback"), _FEEDBACK_LENGTH), artifacts)


def _words(value: Any, longest: int) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, longest)
