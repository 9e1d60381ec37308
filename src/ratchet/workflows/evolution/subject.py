"""The tool that a run rewrites, as it was when the run began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratchet.kernel import Conflict, Misuse
from ratchet.ledger import Transaction
from ratchet.ledger.tool_calls import CallRow, CallStats
from ratchet.ledger.tools import ToolRow, VersionRow, call_stats, calls_of, get_version, line_of, tools_by_id
from ratchet.tools.definition import Tool, full_name
from ratchet.workflows.evolution.cases import Case, example_cases, held_out_cases, input_hash
from ratchet.workflows.evolution.loading import tool_of
from ratchet.workflows.evolution.own_tests import read_tests
from ratchet.workflows.evolution.parts import parts_of

_CALLS = 500
_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Subject:
    """`incumbent` is the version to beat, and `held_out` the real inputs that a variant is tried on."""

    row: ToolRow
    incumbent: VersionRow
    tool: Tool
    examples: Sequence[Case]
    held_out: Sequence[Case]
    stats: CallStats
    failures: Sequence[CallRow]
    tests: str | None


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
    if not held_out:
        raise Misuse(
            f"no real input of the tool {tool.name} is on record, so no variant could be judged",
            hint="use the tool first: examples alone are known to whoever rewrites it",
        )
    return _subject(tx, tool, incumbent, definition, calls, held_out)


def remembered_subject(tx: Transaction, begun: Mapping[str, Any], held_out: Sequence[Case]) -> Subject:
    """The subject that a run began with, whatever has happened to the tool since."""
    tool = tools_by_id(tx, [begun["tool_id"]]).get(begun["tool_id"])
    if tool is None:
        raise Conflict(f"the tool {begun['tool']} was removed while it was rewritten")
    incumbent = get_version(tx, begun["incumbent_id"])
    return _subject(
        tx, tool, incumbent, tool_of(tool, incumbent), calls_of(tx, incumbent.id, limit=_CALLS), held_out
    )


def _subject(
    tx: Transaction,
    tool: ToolRow,
    incumbent: VersionRow,
    definition: Tool,
    calls: Sequence[CallRow],
    held_out: Sequence[Case],
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
    )


def _hash(call: CallRow) -> str | None:
    return input_hash(call.input) if isinstance(call.input, dict) else None


def _older_inputs(tx: Transaction, incumbent: VersionRow) -> list[CallRow]:
    """Inputs of the versions that this one was made from. What they answered is not what this one has to."""
    line = line_of(tx, incumbent)[1:]
    return [replace(call, output=None) for version in line for call in calls_of(tx, version.id, limit=_CALLS)]
