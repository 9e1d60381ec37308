"""Tools that a workflow brings with it, as tools of the ledger: measured, versioned and evolved like any other."""

from __future__ import annotations

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
from ratchet.tools.definition import Tool, folder_of, read_tool
from ratchet.workflows.running.plan import FixedTool


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
