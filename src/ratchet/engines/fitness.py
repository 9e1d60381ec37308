"""Refusing a request that an agent program can never serve, before it costs anything."""

from __future__ import annotations

from ratchet.engines.answer import check_schema
from ratchet.engines.session import Capabilities, Request
from ratchet.kernel import Misuse


def check_fit(request: Request, engine: str, can: Capabilities) -> None:
    """Raise `Misuse` if the request makes no sense, or asks for more than a program in a sandbox `can` do."""
    if not request.prompt.strip():
        raise Misuse("the prompt is empty")
    if request.workspace is not None and not request.workspace.is_dir():
        raise Misuse(f"the workspace {request.workspace} is not a directory")
    asked = {
        "answer to a schema": request.output_schema is not None and not can.structured_output,
        "be given MCP servers": bool(request.mcp_servers) and not can.mcp_tools,
        "resume a session": request.resume is not None and not can.resumable,
        "be given tools of this process": bool(request.tools) and not can.own_tools,
        "be guarded tool by tool": request.guard is not None,
        "be held to a budget of tokens or money, since it does not tell what it uses": (
            (request.limits.tokens is not None or request.limits.cost_usd is not None)
            and not can.reports_usage
        ),
    }
    for what, is_beyond in asked.items():
        if is_beyond:
            raise Misuse(
                f"the engine {engine} cannot {what}", hint="use another engine; see `ratchet engine list`"
            )
    if request.output_schema is not None:
        try:
            check_schema(request.output_schema)
        except ValueError as error:
            raise Misuse(str(error)) from None
