"""Where the console shows a tool: one that a workflow brings with it is asked for with the workflow's name."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from ratchet.server.console.door import ROOT


def tool_place(name: str, action: str = "", **more: str) -> str:
    """The address of the page of a tool, `WORKFLOW/TOOL` or its own name, or of something to be done there."""
    workflow, _, own = name.rpartition("/")
    asked = urlencode(({"workflow": workflow} if workflow else {}) | more)
    return f"{ROOT}/tools/{quote(own, safe='')}{action}{'?' if asked else ''}{asked}"
