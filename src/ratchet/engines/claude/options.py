"""What the SDK and its program are told about a session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions

from ratchet.engines.claude.hearing import Hearing
from ratchet.engines.claude.launch import KEY_VARIABLE
from ratchet.engines.claude.servers import OURS, server_names, write_servers
from ratchet.engines.claude.terms import Terms
from ratchet.engines.claude.tools import EDITS, guarding, own_server
from ratchet.engines.session import Request

ANSWER = "answer"
"""Where the answer is inside an object, when the schema that was asked for does not want an object itself."""

# The program does not start without a key, and an endpoint of one's own may need none.
_NO_KEY = "none"
_DEFINITIONS = ("$defs", "definitions")
_LONGEST_MESSAGE = 64 * 1024 * 1024


def make_options(
    request: Request,
    terms: Terms,
    *,
    token: str,
    directory: Path,
    workspace: Path,
    launcher: Path,
    environment: Mapping[str, str],
    hearing: Hearing,
) -> ClaudeAgentOptions:
    """The options of the session `token`, whose own files are in `directory`."""
    servers = directory / "servers.json"
    write_servers(request, servers)
    extra: dict[str, str | None] = {"mcp-config": str(servers)}
    if request.system is not None:
        # In a file, since a command line has a length limit and is seen by everybody.
        (directory / "system").write_text(request.system)
        extra["append-system-prompt-file"] = str(directory / "system")
    settings = terms.settings
    return ClaudeAgentOptions(
        cli_path=launcher,
        cwd=workspace,
        # The SDK adds these to the environment of this process; the sandbox lets in those that it was told of.
        env={**environment, KEY_VARIABLE: terms.key or _NO_KEY},
        model=request.model or terms.model,
        effort=settings.effort,
        # Without a snapshot, so that a session that goes on with another one obeys its own system prompt.
        system_prompt={"type": "preset", "preset": "claude_code", "snapshot": False},
        tools=list(settings.tools),
        # Edits are allowed by the permission mode, inside the workspace. Naming them would allow them everywhere.
        allowed_tools=[
            *(tool for tool in settings.tools if tool not in EDITS),
            *(f"mcp__{name}" for name in server_names(request)),
        ],
        permission_mode="acceptEdits",
        hooks={"PreToolUse": [guarding(request.guard, hearing.deny)]} if request.guard else None,
        mcp_servers={OURS: own_server(request.tools)} if request.tools else {},
        strict_mcp_config=True,
        setting_sources=[],
        skills=[],
        # The prompt may quote anybody: neither @paths nor /commands in it are orders.
        verbatim_prompts=True,
        include_partial_messages=True,
        max_turns=settings.max_turns,
        max_budget_usd=request.limits.cost_usd,
        output_format=_format(request.output_schema),
        session_id=token,
        resume=request.resume,
        fork_session=request.resume is not None,
        max_buffer_size=_LONGEST_MESSAGE,
        stderr=hearing.hear_stderr,
        extra_args=extra,
    )


def wants_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _format(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    # The program refuses to start with a dialect that it does not know by name.
    asked = {key: value for key, value in schema.items() if key != "$schema"}
    if not wants_object(schema):
        # References go to the top, so what they refer to must stay there.
        definitions: dict[str, Any] = {key: asked.pop(key) for key in _DEFINITIONS if key in asked}
        asked = {"type": "object", "properties": {ANSWER: asked}, "required": [ANSWER], **definitions}
    return {"type": "json_schema", "schema": asked}
