"""The tools of the Architect, as a client sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ratchet.agents.architect_server import shapes
from ratchet.agents.architect_server.caller import Caller
from ratchet.agents.architect_server.desk import Desk, Given, Told
from ratchet.agents.architect_server.shapes import Schema, arguments, count, text


@dataclass(frozen=True, slots=True)
class ArchitectTool:
    """One that `reads` changes nothing, and one that is `repeatable` nothing more when it is called again."""

    name: str
    title: str
    description: str
    input_schema: Schema
    output_schema: Schema
    run: Callable[[Desk, Caller, Given], Awaitable[Told]]
    reads: bool = False
    repeatable: bool = False


def usable_by(caller: Caller) -> Mapping[str, ArchitectTool]:
    return _TOOLS if caller.version is None else _TOOLS_FOR_AGENTS


_CREATE = ArchitectTool(
    "create_agent",
    "Create an agent",
    "Make a new agent, a pair of MCP servers, from a description of what it should do. A coding engine writes it, "
    "which takes minutes: the answer names the run, and with wait_seconds also what came of it.",
    arguments(
        {
            "name": text("what it is called: lower-case letters, digits, '.', '_' and '-'"),
            "description": text("what the agent should do, as you would tell a colleague"),
            **shapes.WORK,
        },
        "name",
        "description",
    ),
    shapes.RUN,
    Desk.create_agent,
)
_FEEDBACK = ArchitectTool(
    "send_feedback",
    "Give an agent feedback",
    "Tell an agent what was wrong with it, or what is wanted of it. The Architect decides whether to change nothing, "
    "its state or its code; changed code is tested before it is used. The answer names the run, and with "
    "wait_seconds also what came of it.",
    arguments(
        {
            "agent": shapes.NAME,
            "message": shapes.MESSAGE,
            "severity": shapes.SEVERITY,
            "version": text(f"the version that it is about, if not the current one: {shapes.A_VERSION}"),
            **shapes.WORK,
        },
        "agent",
        "message",
    ),
    shapes.RUN,
    Desk.send_feedback,
)
_LIST = ArchitectTool(
    "list_agents",
    "List agents",
    "The agents by name, with what each is for and which version it has.",
    arguments(
        {
            "after": text("only names after this one, for the next page"),
            "limit": count("how many to list", most=500, usual=100),
        }
    ),
    shapes.AGENTS,
    Desk.list_agents,
    reads=True,
)
_SHOW = ArchitectTool(
    "get_agent",
    "Show an agent",
    "One agent: its addresses, its current version and the latest ones, and what was asked of it lately.",
    arguments(
        {
            "name": shapes.NAME,
            "versions": count("how many versions to show, newest first", most=100, usual=10),
        },
        "name",
    ),
    shapes.AGENT,
    Desk.get_agent,
    reads=True,
)
_COMPARE = ArchitectTool(
    "compare_versions",
    "Compare two versions",
    "What differs between two versions of an agent: its tools, its files, and a patch.",
    arguments(
        {
            "name": shapes.NAME,
            "old": text(f"the version that `new` was made from, if not named; else {shapes.A_VERSION}"),
            "new": text(f"the current version, if not named; else {shapes.A_VERSION}"),
        },
        "name",
    ),
    shapes.COMPARISON,
    Desk.compare_versions,
    reads=True,
)
_PROMOTE = ArchitectTool(
    "promote",
    "Promote a version",
    "Let an agent's address lead to this version from now on. Sessions that have begun end where they began.",
    arguments(
        {
            "name": shapes.NAME,
            "version": text(f"the version that is to serve: {shapes.A_VERSION}"),
        },
        "name",
        "version",
    ),
    shapes.MOVED,
    Desk.promote,
    repeatable=True,
)
_ROLLBACK = ArchitectTool(
    "rollback",
    "Roll an agent back",
    "Take an agent back to an earlier version: the one before the current one, unless another is named.",
    arguments(
        {
            "name": shapes.NAME,
            "version": text(f"the version to go back to: {shapes.A_VERSION}"),
            "carry_state": {
                "type": "boolean",
                "default": False,
                "description": "take along what was learned since; otherwise that version has the state it had",
            },
        },
        "name",
    ),
    shapes.MOVED,
    Desk.rollback,
)
_TELL_OF_ITSELF = ArchitectTool(
    "send_feedback",
    "Ask for a change",
    "Tell the Architect what this agent cannot learn by its state alone. Each call may cost a session of a coding "
    "engine. The answer names the run.",
    arguments(
        {
            "message": shapes.MESSAGE,
            "severity": shapes.SEVERITY,
            "agent": text("your own name, or left out"),
            "version": text("your own version, or left out"),
        },
        "message",
    ),
    shapes.RUN,
    Desk.tell_of_itself,
)
_ASK = ArchitectTool(
    "ask_llm",
    "Ask a language model",
    "Ask the language model that Ratchet is configured with, and get its answer: as text, or as a value that fits "
    "a JSON Schema.",
    arguments(
        {
            "prompt": text("the question"),
            "system": text("what the model is told beforehand"),
            "schema": {"type": "object", "description": "a JSON Schema that the answer must fit"},
            "model": text("another model than the configured one, as Ratchet's settings call it"),
        },
        "prompt",
    ),
    shapes.ANSWER,
    Desk.ask_llm,
)

_TOOLS: Mapping[str, ArchitectTool] = {
    tool.name: tool for tool in (_CREATE, _FEEDBACK, _LIST, _SHOW, _COMPARE, _PROMOTE, _ROLLBACK)
}
_TOOLS_FOR_AGENTS: Mapping[str, ArchitectTool] = {tool.name: tool for tool in (_TELL_OF_ITSELF, _ASK)}
