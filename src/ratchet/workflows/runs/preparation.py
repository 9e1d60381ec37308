"""Making a workflow ready to run: every workflow inside it in its place, every tool fixed to a version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.validation import check_inputs
from ratchet.ledger import Transaction
from ratchet.ledger.tools import (
    Source,
    add_tool,
    add_version,
    find_tool,
    get_tool,
    get_version,
    note_source,
    promote_version,
)
from ratchet.runtime import Runtime
from ratchet.tools.definition import Tool, folder_of, read_tool
from ratchet.workflows.files import BadWorkflow
from ratchet.workflows.runs.plan import FixedTool, RunPlan
from ratchet.workflows.runs.tools import FoundTools, find_tools


def adopt(tx: Transaction, workflow_id: str, name: str, tool: Tool) -> FixedTool:
    """The version of the tool to be used.

    That is the one in the workflow when it is new or has changed there; otherwise the current one, which may be a
    better one that came of it.
    """
    folder = folder_of(workflow_id)
    source = Source(folder, hash=tool.hash)
    tx.lock_keys(f"tool:{folder}:{name}")
    row = find_tool(tx, name, folder=folder)
    if row is None or row.source_hash != tool.hash or row.called_id is None:
        row = add_tool(tx, name, source, folder=folder)
        version = add_version(tx, row, tool.data, tool.hash, origin="workflow", parent_id=row.current_id)
        if version.id != row.current_id:
            promote_version(tx, row, version, expected=row.current_id, reason="as the workflow has it")
        note_source(tx, row, source)
        row = get_tool(tx, name, folder=folder)
    assert row.called_id is not None
    called = get_version(tx, row.called_id)
    return FixedTool(read_tool(called.definition, folder=None, id=name, stored=True), row.id, called.id)


def prepare(
    runtime: Runtime,
    spec: WorkflowSpec,
    inputs: Mapping[str, Any],
    *,
    folder: Path | None = None,
    cached: bool = True,
    spread: bool | None = None,
) -> RunPlan:
    """The plan of a run that has not begun. Raises `BadWorkflow` with everything that keeps it from running.

    `folder` is where the paths of the workflow start, and where its own tools lie.
    """
    try:
        values = check_inputs(spec, inputs)
    except SpecError as error:
        raise BadWorkflow(error.problems) from error
    whole, tools = fix(runtime, spec, folder=folder)
    settings = runtime.settings
    return RunPlan(
        spec=whole,
        inputs=values,
        tools=tools,
        folder=folder,
        cached=cached,
        spread=settings.workflows.spread if spread is None else spread,
        model=settings.workflows.llm,
    )


def fix(
    runtime: Runtime, spec: WorkflowSpec, *, folder: Path | None = None
) -> tuple[WorkflowSpec, dict[tuple[str, str], FixedTool]]:
    """The whole workflow, and the version of each tool by the workflow and the name that uses it.

    Raises `BadWorkflow`.
    """
    complete, found = find_tools(runtime, spec, folder=folder)
    return complete, _fixed(runtime, found)


def _fixed(runtime: Runtime, found: FoundTools) -> dict[tuple[str, str], FixedTool]:
    fixed = {
        key: FixedTool(version.tool, version.tool_id, version.id) for key, version in found.installed.items()
    }
    if found.carried:
        with runtime.ledger.write(actor="ratchet") as tx:
            for (workflow_id, name), tool in found.carried.items():
                fixed[workflow_id, name] = adopt(tx, workflow_id, name, tool)
    return fixed
