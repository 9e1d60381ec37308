"""The tests that a tool brings with it."""

from __future__ import annotations

from pathlib import Path

from ratchet.judges import Candidate, CommandJudge
from ratchet.judges.hearing import hear
from ratchet.judges.scratch import scratch
from ratchet.kernel import Misuse, Outcome, Verdict
from ratchet.sandbox import Bounds
from ratchet.tools.definition import Tool
from ratchet.workflows.evolution.parts import MOST_BYTES, SOURCE

_KEY = "tests"
_FILE = "test_tool.py"
_SECONDS = 300.0


def read_tests(tool: Tool) -> str | None:
    """The tests of a python tool: the file in its folder that the key `tests` of its definition names."""
    named = tool.extra.get(_KEY)
    if named is None or tool.python is None:
        return None
    if tool.folder is None or not isinstance(named, str):
        raise Misuse(
            f"the tests of the tool {tool.id} cannot be found: {named!r}",
            hint="name a file in the folder of its definition",
        )
    path = (tool.folder / named).resolve()
    if not path.is_relative_to(tool.folder.resolve()) or not path.is_file():
        raise Misuse(f"the tool {tool.id} has no tests at {path}", hint="name a file in its folder")
    if path.stat().st_size > MOST_BYTES:
        raise Misuse(f"the tests of the tool {tool.id} have more than {MOST_BYTES} bytes")
    return path.read_text(encoding="utf-8")


async def run_tests(tests: str, source: str) -> Verdict:
    """Run tests against a source, which they import as `tool`. Only the variant is its author's; the tests are not."""
    judge = CommandJudge(
        name="tests",
        argv=(
            *("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"),
            *("--junitxml={reports}/junit.xml", _FILE),
        ),
        junit="junit.xml",
        bounds=Bounds(wall_seconds=_SECONDS),
    )
    async with scratch() as place:
        directory = place / "subject"
        directory.mkdir()
        _write(directory, source, tests)
        judged = await hear(judge, Candidate("", "", directory, ""))
    return judged.verdict


def passed(verdict: Verdict | None) -> bool:
    return verdict is None or verdict.outcome is Outcome.PASSED


def _write(directory: Path, source: str, tests: str) -> None:
    (directory / SOURCE).write_text(source, encoding="utf-8")
    (directory / _FILE).write_text(tests, encoding="utf-8")
