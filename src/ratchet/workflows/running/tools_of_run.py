"""A tool that the workflow of a run brought with it, to be put among all others."""

from __future__ import annotations

from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import Transaction
from ratchet.ledger.runs import get_run
from ratchet.ledger.tools import tools_by_id
from ratchet.tools.definition import Tool, folder_of
from ratchet.workflows.running.plan import load_plan


def tool_of_run(tx: Transaction, run_id: int, name: str | None = None) -> Tool:
    """The tool `name` of a run, in the version that the run used; without a name the only one that it has.

    Raises `NotFound` and `Misuse`.
    """
    run = get_run(tx, run_id)
    if run.kind != "workflow" or "workflow" not in (run.spec or {}):
        raise NotFound("run of a workflow", run_id)
    used = load_plan(tx, run).tools
    rows = tools_by_id(tx, [fixed.tool_id for fixed in used.values()])
    found = {
        own: fixed.tool
        for (workflow, own), fixed in used.items()
        if fixed.tool_id in rows and rows[fixed.tool_id].folder == folder_of(workflow)
    }
    if name is not None and name not in found:
        missing = NotFound(f"tool {name} in run", run_id)
        missing.hint = f"it brought {', '.join(found) or 'none'}"
        raise missing
    if name is None and len(found) != 1:
        raise Misuse(
            f"run {run_id} brought {len(found)} tools: {', '.join(found) or 'none'}",
            hint="say which with --tool",
        )
    return found[name] if name is not None else next(iter(found.values()))
