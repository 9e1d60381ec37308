"""The tool that a run rewrites, as it was when the run began."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from ratchet.judges import Candidate, CommandJudge
from ratchet.judges.judge import hear
from ratchet.judges.scratch import scratch
from ratchet.kernel import Conflict, Misuse, Outcome, Verdict
from ratchet.ledger import Transaction
from ratchet.ledger.tools import (
    CallRow,
    CallStats,
    ToolRow,
    VersionRow,
    call_stats,
    calls_of,
    get_version,
    line_of,
    tools_by_id,
)
from ratchet.placement import LOCAL, Placement
from ratchet.sandbox import Bounds
from ratchet.tools.definition import Example, Tool, ToolType, full_name
from ratchet.tools.invocation import difference
from ratchet.workflows.evolution.graph import graph_report
from ratchet.workflows.evolution.health import tool_of
from ratchet.workflows.evolution.parts import MOST_BYTES, SOURCE, parts_of

_KEY = "tests"
_FILE = "test_tool.py"
_SECONDS = 300.0
_WRONG = "another answer than the right one"
_CALLS = 500
_FAILURES = 20
PRAISED = 0.75
"""The answer of a call that was scored so high or higher is right."""


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


async def run_tests(tests: str, source: str, placement: Placement = LOCAL) -> Verdict:
    """Run tests against a source, which they import as `tool`. Only the variant is its author's; the tests are not."""
    judge = CommandJudge(
        name="tests",
        argv=(
            *("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"),
            *("--junitxml={reports}/junit.xml", _FILE),
        ),
        junit="junit.xml",
        bounds=Bounds(wall_seconds=_SECONDS),
        placement=placement,
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


class CaseOrigin(StrEnum):
    EXAMPLE = "example"
    KEPT_BACK = "example that its author did not see"
    HELD_OUT = "held-out input"
    GENERATED = "generated input"

    @property
    def is_example(self) -> bool:
        return self in (CaseOrigin.EXAMPLE, CaseOrigin.KEPT_BACK)


class RecordedCase(Protocol):
    """A call on record."""

    @property
    def ok(self) -> bool: ...

    @property
    def score(self) -> float | None: ...

    @property
    def input(self) -> Any: ...

    @property
    def output(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class ToolCase:
    """Values, and what must come of them. Where nothing is `exact`, any answer that fits the tool's schema is right.

    `recorded` is what came of it when it was called for real, if that was kept; `praised` says that a person or a judge
    scored that answer as good, so that it is right whatever the version in use answers now.
    """

    origin: CaseOrigin
    values: Mapping[str, Any]
    expected: Any = None
    exact: bool = False
    recorded: Any = None
    praised: bool = False

    def complaint(self, value: Any) -> str | None:
        """What is wrong with an answer. Of what is kept from the author nothing is revealed."""
        found = difference(value, self.expected) if self.exact else None
        hidden = self.origin in (CaseOrigin.HELD_OUT, CaseOrigin.KEPT_BACK)
        return _WRONG if found is not None and hidden else found

    def answered(self, value: Any, again: Any) -> ToolCase:
        """The case, now that the incumbent has answered it twice.

        A real input must be answered as the incumbent does, if that always answers in the same way: one that draws lots
        or looks at the clock gives no answer to be held to.
        """
        if self.origin.is_example:
            return self
        if self.praised:
            return replace(self, expected=self.recorded, exact=True)
        as_before = self.recorded is None or difference(value, self.recorded) is None
        return replace(self, expected=value, exact=as_before and difference(value, again) is None)


def example_cases(tool: Tool) -> list[ToolCase]:
    """The examples that say what must come of them.

    Of three or more a third is kept from the author, chosen by the hash: who knows all of them need not solve any.
    """
    checked = [example for example in tool.examples if example.checked]
    by_hash = sorted(input_hash(example.input) for example in checked)
    kept_back = set(by_hash[: len(checked) // 3])
    origins = {True: CaseOrigin.KEPT_BACK, False: CaseOrigin.EXAMPLE}
    return [
        ToolCase(origins[input_hash(each.input) in kept_back], each.input, each.output, exact=True)
        for each in checked
    ]


def held_out_cases(tool: Tool, calls: Iterable[RecordedCase], most: int, *, low: float) -> list[ToolCase]:
    """Up to `most` different real inputs that were answered well, chosen by their hash: they cannot be picked.

    What stands among the examples is known to the author and is none.
    """
    known = {input_hash(example.input) for example in tool.examples}
    found: dict[str, ToolCase] = {}
    for call in calls:
        if not call.ok or not isinstance(call.input, dict) or (call.score is not None and call.score < low):
            continue
        name = input_hash(call.input)
        if name not in known and name not in found:
            praised = call.score is not None and call.score >= PRAISED and call.output is not None
            found[name] = ToolCase(CaseOrigin.HELD_OUT, call.input, recorded=call.output, praised=praised)
    return [found[name] for name in sorted(found)[:most]]


def write_cases(cases: Sequence[ToolCase]) -> bytes:
    """Real inputs as they are kept for a run that is begun again."""
    return json.dumps([[case.values, case.recorded, case.praised] for case in cases]).encode()


def read_cases(data: bytes) -> list[ToolCase]:
    return [
        ToolCase(CaseOrigin.HELD_OUT, values, recorded=recorded, praised=bool(praised))
        # A run of an earlier release has kept no word about praise.
        for values, recorded, praised in ((*each, False)[:3] for each in json.loads(data))
    ]


def input_hash(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_repeatable(tool: Tool) -> bool:
    """Whether one input should give one answer. A model is asked again and answers differently."""
    return tool.type is not ToolType.LLM


@dataclass(frozen=True, slots=True)
class Subject:
    """`incumbent` is the version to beat, and `held_out` the real inputs that a variant is tried on."""

    row: ToolRow
    incumbent: VersionRow
    tool: Tool
    examples: Sequence[ToolCase]
    held_out: Sequence[ToolCase]
    stats: CallStats
    failures: Sequence[CallRow]
    tests: str | None
    failing: frozenset[str] = frozenset()
    """The examples that the incumbent fails, by the hashes of their inputs."""
    asks_models: bool = False
    """Whether it is a workflow that asks models."""
    graph: Sequence[str] = ()
    """Where the time of a workflow goes, in sentences."""

    @property
    def shown_examples(self) -> list[Example]:
        """Those that the author may see."""
        kept_back = {input_hash(case.values) for case in self.examples if case.origin is CaseOrigin.KEPT_BACK}
        return [each for each in self.tool.examples if input_hash(each.input) not in kept_back]


def check_evolvable(tx: Transaction, tool: ToolRow) -> VersionRow:
    """The version that would be rewritten. Raises `Conflict` or `Misuse` where nothing can be done."""
    if tool.pinned_id is not None:
        pinned = get_version(tx, tool.pinned_id)
        raise Conflict(
            f"the tool {tool.name} is pinned to {pinned.version}, so nothing may replace it",
            hint=f"`ratchet tool unpin {full_name(tool.name, tool.folder)}` lets it follow what is promoted",
        )
    if tool.current_id is None:
        raise Conflict(f"the tool {tool.name} has no version in use")
    return get_version(tx, tool.current_id)


def choose_subject(tx: Transaction, tool: ToolRow, *, cases: int, low: float) -> Subject:
    """The tool with everything that a variant is judged by. Raises `Misuse` if there is nothing to judge by."""
    incumbent = check_evolvable(tx, tool)
    definition = tool_of(tool, incumbent)
    parts_of(definition)
    calls = calls_of(tx, incumbent.id, limit=_CALLS)
    held_out = held_out_cases(definition, [*calls, *_older_inputs(tx, incumbent)], cases, low=low)
    if not held_out and not incumbent.examples_failed:
        raise Misuse(
            f"no real input of the tool {tool.name} is on record, so no variant could be judged",
            hint=f"use the tool first, or find out by `ratchet tool test {full_name(tool.name, tool.folder)}` "
            "whether it fails its examples",
        )
    return _subject(tx, tool, incumbent, definition, calls, held_out)


def remembered_subject(tx: Transaction, begun: Mapping[str, Any], held_out: Sequence[ToolCase]) -> Subject:
    """The subject that a run began with, whatever has happened to the tool since."""
    tool = tools_by_id(tx, [begun["tool_id"]]).get(begun["tool_id"])
    if tool is None:
        raise Conflict(f"the tool {begun['tool']} was removed while it was rewritten")
    incumbent = get_version(tx, begun["incumbent_id"])
    found = _subject(
        tx, tool, incumbent, tool_of(tool, incumbent), calls_of(tx, incumbent.id, limit=_CALLS), held_out
    )
    failing = frozenset(begun.get("failing", ()))
    return replace(found, failing=failing, asks_models=bool(begun.get("asks_models")))


def _subject(
    tx: Transaction,
    tool: ToolRow,
    incumbent: VersionRow,
    definition: Tool,
    calls: Sequence[CallRow],
    held_out: Sequence[ToolCase],
) -> Subject:
    # An input that failed once and is held out since it went well another time stays unknown to the author.
    hidden = {input_hash(case.values) for case in held_out}
    failures = [call for call in calls if not call.ok and _hash(call) not in hidden][:_FAILURES]
    return Subject(
        tool,
        incumbent,
        definition,
        example_cases(definition),
        held_out,
        call_stats(tx, incumbent.id),
        failures,
        read_tests(definition),
        graph=graph_report(tx, definition, calls),
    )


def _hash(call: CallRow) -> str | None:
    return input_hash(call.input) if isinstance(call.input, dict) else None


def _older_inputs(tx: Transaction, incumbent: VersionRow) -> list[CallRow]:
    """Inputs of the versions that this one was made from. What they answered is not what this one has to."""
    line = line_of(tx, incumbent)[1:]
    return [replace(call, output=None) for version in line for call in calls_of(tx, version.id, limit=_CALLS)]
