"""Tools as they are shown: what each takes and answers, which version is called, and how it has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ratchet.kernel import iso
from ratchet.ledger.tools import VersionRow, call_stats, list_versions, versions_by_id
from ratchet.tools.definition import full_name

if TYPE_CHECKING:
    from ratchet.ledger import Run, Transaction
    from ratchet.ledger.tool_calls import CallStats
    from ratchet.tools.call import ToolFailed, ToolResult, ToolUse
    from ratchet.tools.examples import ExampleResult, ToolTested
    from ratchet.tools.registry import ToolVersion
    from ratchet.tools.search import ToolChoice


def tool_record(version: ToolVersion) -> dict[str, Any]:
    """A tool in short, in the version that is called. `problem` says why it cannot be, if it cannot."""
    tool = version.tool
    return {
        "tool": version.name,
        "type": str(tool.type),
        "version": version.version,
        "hash": version.hash,
        "pinned": version.pinned,
        "source": version.source,
        "description": tool.description,
        "tags": list(tool.tags),
        "problem": tool.refusal,
    }


def best_first(tx: Transaction, versions: Sequence[ToolVersion]) -> list[tuple[ToolVersion, float | None]]:
    """Tools with the mean score of their calls, the best first; one that nobody scored by the part that went well."""
    rows = versions_by_id(tx, [each.id for each in versions])
    scored = [(each, _score(rows[each.id])) for each in versions]
    return sorted(scored, key=lambda each: (each[1] is None, -(each[1] or 0.0), each[0].name))


def _score(row: VersionRow) -> float | None:
    if row.scored:
        return row.score_sum / row.scored
    return 1 - row.failures / row.calls if row.calls else None


def one_tool(tx: Transaction, version: ToolVersion) -> dict[str, Any]:
    """A tool with its definition, and how this version has done."""
    return {
        **tool_record(version),
        "definition": version.tool.data,
        "warnings": list(version.tool.warnings),
        "examples": len(version.tool.examples),
        "stats": stats_record(call_stats(tx, version.id)),
    }


def stats_record(stats: CallStats) -> dict[str, Any]:
    """How a version has done over all its calls, and over the last ones."""
    return {**asdict(stats), "success_rate": stats.success_rate}


def tool_versions(
    tx: Transaction, called: ToolVersion, *, before: int | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """The versions of a tool, newest first, with those that were refused; `called` is the one that is in use."""
    found = list_versions(tx, called.tool_id, before=before, limit=limit)
    return [{**version_record(row), "is_called": row.id == called.id} for row in found]


def version_record(row: VersionRow) -> dict[str, Any]:
    """A version as it came about. `origin` says by whom, `reason` why it was taken or refused."""
    return {
        "id": row.id,
        "version": row.version,
        "hash": row.hash,
        "status": str(row.status),
        "change_type": row.change_type,
        "origin": row.origin,
        "parent": row.parent_id,
        "reason": row.reason,
        "run_id": row.run_id,
        "simulated": row.simulated,
        "calls": row.calls,
        "failures": row.failures,
        "created_at": iso(row.created_at),
        "promoted_at": None if row.promoted_at is None else iso(row.promoted_at),
    }


def choice_record(choice: ToolChoice) -> dict[str, Any]:
    """A tool that a search has found. `fitness` is the sum of the points of its `reasons`."""
    return {
        **tool_record(choice.version),
        "likeness": round(choice.likeness, 4),
        "fitness": round(choice.fitness, 2),
        "reasons": [
            {"part": part.name, "points": round(part.points, 2), "why": part.why}
            for part in sorted(choice.parts, key=lambda part: -abs(part.points))
        ],
    }


def call_record(version: ToolVersion, came: ToolResult | ToolFailed) -> dict[str, Any]:
    """What came of one call, good or not."""
    from ratchet.tools.call import ToolFailed, ToolResult

    failed = came if isinstance(came, ToolFailed) else None
    return {
        "tool": version.name,
        "version": version.version,
        "ok": failed is None,
        "value": came.value if isinstance(came, ToolResult) else None,
        "error": None if failed is None else str(failed),
        "hint": None if failed is None else failed.hint,
        "metrics": use_record(came.use),
        "said": came.said,
        "simulated": isinstance(came, ToolResult) and came.simulated,
    }


def use_record(use: ToolUse) -> dict[str, Any]:
    """What was measured."""
    return {name: value for name, value in asdict(use).items() if value is not None}


def tested_record(version: ToolVersion, tested: ToolTested) -> dict[str, Any]:
    """What the examples of a tool came to. One without examples has not passed, and has not failed."""
    return {
        "tool": version.name,
        "version": version.version,
        "passed": tested.passed,
        "examples": [_example_record(result) for result in tested.results],
    }


def _example_record(result: ExampleResult) -> dict[str, Any]:
    return {
        "input": dict(result.input),
        "passed": result.passed,
        "checked": result.checked,
        "expected": result.expected,
        "got": result.got,
        "why": result.why,
        "metrics": use_record(result.use),
    }


def tools_of_run(tx: Transaction, run: Run) -> dict[str, str]:
    """The full names of the tools that the steps of a run call, by the names that they use. Those in files beside a
    workflow can be reached from there only, and have none."""
    # Loaded here: it knows how every kind of tool is called.
    from ratchet.workflows.runs.plan import tools_of_steps

    return {
        name: full_name(row.name, row.folder)
        for name, row in tools_of_steps(tx, run).items()
        if not row.folder or full_name(row.name, row.folder) != row.name
    }
