"""A tool in the ledger with calls on record, and runs that are waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger, Run, Transaction
from ratchet.ledger.runs import get_run
from ratchet.ledger.tools import (
    CallRow,
    Source,
    ToolRow,
    VersionRow,
    add_tool,
    add_version,
    get_tool,
    get_version,
    list_versions,
    promote_version,
    record_calls,
)
from ratchet.tools.definition import read_tool
from tests.waiting import eventually
from tests.workflows.evolution.variants import SLOW, SLOWER

NAME = "add-up"
# Each keeps the slow version busy for some 15 ms.
INPUTS = (400_000, 410_000, 420_000)


def definition(source: str = SLOW, **more: Any) -> dict[str, Any]:
    told = {
        "name": "Add up",
        "type": "python",
        "description": "Adds up the whole numbers below a number.",
        "input_schema": {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0}},
            "required": ["n"],
        },
        "output_schema": {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
        "examples": [{"input": {"n": 10}, "output": {"sum": 45}}],
        "python": {"source": source},
    }
    return {key: value for key, value in {**told, **more}.items() if value is not None}


def put_tool(
    tx: Transaction, name: str = NAME, *, source_file: str = "tests", **more: Any
) -> tuple[ToolRow, VersionRow]:
    """A tool of one version, which is in use."""
    tool = read_tool(definition(**more), folder=None, id=name)
    row = add_tool(tx, name, Source(source_file))
    version = add_version(tx, row, tool.data, tool.hash)
    promote_version(tx, row, version, expected=None)
    return get_tool(tx, name), version


def put_other_version(tx: Transaction, source: str = SLOWER, name: str = NAME) -> VersionRow:
    """Another version of the tool, which is in use from now on."""
    tool, row = read_tool(definition(source), folder=None, id=name), get_tool(tx, name)
    version = add_version(tx, row, tool.data, tool.hash, parent_id=row.current_id)
    promote_version(tx, row, version, expected=row.current_id)
    return version


def put_calls(
    tx: Transaction,
    tool: ToolRow,
    *,
    inputs: Sequence[int] = INPUTS,
    ok: bool = True,
    score: float | None = None,
    times: int = 1,
    simulated: bool = False,
) -> None:
    assert tool.current_id is not None
    rows = [
        CallRow(
            tool.id,
            tool.current_id,
            ok,
            20.0,
            tx.now,
            error=None if ok else "it broke",
            cpu_ms=20.0,
            peak_bytes=10_000_000,
            score=score,
            input={"n": n},
            output={"sum": n * (n - 1) // 2} if ok else None,
            simulated=simulated,
        )
        for n in inputs
    ]
    record_calls(tx, rows * times)


def prepared(ledger: Ledger, name: str = NAME, **more: Any) -> ToolRow:
    """A tool with enough real calls to try a variant on."""
    with ledger.write() as tx:
        tool, _ = put_tool(tx, name, **more)
        put_calls(tx, tool)
    return tool


def settled(ledger: Ledger, run_id: int, seconds: float = 60.0) -> Run:
    """The run once it has ended."""

    def look() -> Run:
        with ledger.read() as tx:
            return get_run(tx, run_id)

    eventually(lambda: look().status.final)
    return look()


def completed(ledger: Ledger, run_id: int) -> Run:
    run = settled(ledger, run_id)
    assert run.status is RunStatus.COMPLETED, run.reason
    return run


def current(ledger: Ledger, name: str = NAME) -> VersionRow:
    with ledger.read() as tx:
        tool = get_tool(tx, name)
        assert tool.current_id is not None
        return get_version(tx, tool.current_id)


def versions(ledger: Ledger, name: str = NAME) -> list[VersionRow]:
    """Oldest first."""
    with ledger.read() as tx:
        return list_versions(tx, get_tool(tx, name).id)[::-1]
