"""Tools that a workflow brings with it: where the ledger keeps them, and how a person names them."""

from __future__ import annotations

_SCHEME = "workflow:"


def folder_of(workflow_id: str) -> str:
    """Where the ledger keeps the tools of a workflow: two workflows may bring tools of the same name."""
    return f"{_SCHEME}{workflow_id}"


def full_name(tool_id: str, folder: str) -> str:
    """`WORKFLOW/TOOL` for a tool of a workflow's folder, and its id for any other."""
    workflow = folder.removeprefix(_SCHEME)
    return tool_id if workflow == folder else f"{workflow}/{tool_id}"


def read_name(name: str) -> tuple[str, str]:
    """The id of a tool, and the folder of the workflow that brings it; nothing if the name is not `WORKFLOW/TOOL`."""
    workflow, slash, tool_id = name.rpartition("/")
    return tool_id, folder_of(workflow) if slash else ""
