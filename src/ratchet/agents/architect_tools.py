"""The tools of the Architect as a client sees them, with the JSON Schemas of their arguments and results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.agents.architect_service import ArchitectCaller, ArchitectService, Given, Reply
from ratchet.agents.contract import Severity

Schema = dict[str, Any]

LONGEST_WAIT = 600
A_VERSION = "a number such as 0.1.0, the first digits of a commit, or latest"


def text(description: str) -> Schema:
    return {"type": "string", "description": description}


def count(description: str, *, most: int, usual: int) -> Schema:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": usual, "description": description}


def object_with(properties: Mapping[str, Schema]) -> Schema:
    """An object with at least these properties."""
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def arguments(properties: Mapping[str, Schema], *required: str) -> Schema:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


NAME = text("the name of the agent")
MESSAGE = text("what was wrong or is wanted, with an example if there is one")
SEVERITY: Schema = {
    "type": "string",
    "enum": [str(each) for each in Severity],
    "default": str(Severity.NORMAL),
    "description": "how bad it was",
}
WORK: Mapping[str, Schema] = {
    "engine": text("who writes it, if not the configured engine"),
    "model": text("the model of that engine, if not its usual one"),
    "simulated": {
        "type": "boolean",
        "default": False,
        "description": "whether it may rest on recorded sessions, and is marked so",
    },
    "wait_seconds": {
        "type": "number",
        "minimum": 0,
        "maximum": LONGEST_WAIT,
        "default": 0,
        "description": "how long to wait for the result; the run continues in any case",
    },
}
"""How an engine's work is wanted."""

_OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
_MAYBE: Schema = {"type": ["string", "null"]}
RUN = object_with(
    {
        "run_id": {"type": "integer"},
        "status": text("completed, failed, or its progress"),
        "reason": {**_MAYBE, "description": "why it failed or is paused"},
        "result": {"description": "what was decided, and the version that came of it; null until then"},
        "simulated": {"type": "boolean"},
    }
)
REMARK = object_with(
    {
        "feedback_id": {"type": "integer"},
        "status": text("waiting, or taken by a run"),
        "count": {"type": "integer", "description": "how often this was said of this version"},
        "run_id": {"type": ["integer", "null"], "description": "the run that works on it"},
    }
)
AGENTS = object_with({"agents": _OBJECTS})
_AGENT: Mapping[str, Schema] = {
    "name": text("its name"),
    "status": text("ready, or its progress"),
    "version": {**_MAYBE, "description": "the number of the version that its address leads to"},
    "commit": {**_MAYBE, "description": "and its commit"},
}
AGENT = object_with({**_AGENT, "versions": _OBJECTS})
MOVED = object_with(
    {**_AGENT, "before": {**_MAYBE, "description": "the commit that its address led to before"}}
)
COMPARISON = object_with(
    {
        "old": {"type": "object"},
        "new": {"type": "object"},
        "tools": {"type": "object"},
        "files": {"type": "array", "items": {"type": "string"}},
        "diff": text("a patch"),
        "is_cut": {"type": "boolean", "description": "whether the patch is longer than what is shown"},
    }
)
ANSWER = object_with(
    {
        "text": text("what the model said"),
        "output": {"description": "its answer to the schema; null without one"},
        "simulated": {"type": "boolean", "description": "whether no model has given it"},
    }
)


@dataclass(frozen=True, slots=True)
class ArchitectTool:
    """One that `reads` changes nothing, and one that is `repeatable` nothing more when it is called again."""

    name: str
    title: str
    description: str
    input_schema: Schema
    output_schema: Schema
    run: Callable[[ArchitectService, ArchitectCaller, Given], Awaitable[Reply]]
    reads: bool = False
    repeatable: bool = False


def usable_by(caller: ArchitectCaller) -> Mapping[str, ArchitectTool]:
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
            **WORK,
        },
        "name",
        "description",
    ),
    RUN,
    ArchitectService.create_agent,
)
_FEEDBACK = ArchitectTool(
    "send_feedback",
    "Give an agent feedback",
    "Tell an agent what was wrong with it, or what is wanted of it. The Architect decides whether to change nothing, "
    "its state or its code; changed code is tested before it is used. The answer names the run, and with "
    "wait_seconds also what came of it.",
    arguments(
        {
            "agent": NAME,
            "message": MESSAGE,
            "severity": SEVERITY,
            "version": text(f"the version that it is about, if not the current one: {A_VERSION}"),
            "about": {
                "type": "array",
                "items": {"type": "string"},
                "description": "the tools that may answer recorded calls otherwise from now on",
            },
            **WORK,
        },
        "agent",
        "message",
    ),
    RUN,
    ArchitectService.send_feedback,
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
    AGENTS,
    ArchitectService.list_agents,
    reads=True,
)
_SHOW = ArchitectTool(
    "get_agent",
    "Show an agent",
    "One agent: its addresses, its current version and the latest ones, and what was asked of it lately.",
    arguments(
        {"name": NAME, "versions": count("how many versions to show, newest first", most=100, usual=10)},
        "name",
    ),
    AGENT,
    ArchitectService.get_agent,
    reads=True,
)
_COMPARE = ArchitectTool(
    "compare_versions",
    "Compare two versions",
    "What differs between two versions of an agent: its tools, its files, and a patch.",
    arguments(
        {
            "name": NAME,
            "old": text(f"the version that `new` was made from, if not named; else {A_VERSION}"),
            "new": text(f"the current version, if not named; else {A_VERSION}"),
        },
        "name",
    ),
    COMPARISON,
    ArchitectService.compare_versions,
    reads=True,
)
_PROMOTE = ArchitectTool(
    "promote",
    "Promote a version",
    "Let an agent's address lead to this version from now on. Sessions that have begun end where they began.",
    arguments(
        {"name": NAME, "version": text(f"the version that is to serve: {A_VERSION}")}, "name", "version"
    ),
    MOVED,
    ArchitectService.promote,
    repeatable=True,
)
_ROLLBACK = ArchitectTool(
    "rollback",
    "Roll an agent back",
    "Take an agent back to an earlier version: the one before the current one, unless another is named.",
    arguments(
        {
            "name": NAME,
            "version": text(f"the version to go back to: {A_VERSION}"),
            "carry_state": {
                "type": "boolean",
                "default": False,
                "description": "if that version has the state in another form: give it the present one",
            },
            "leave_changes": {
                "type": "boolean",
                "default": False,
                "description": "if it has another form: go back although changes of the state stay behind",
            },
        },
        "name",
    ),
    MOVED,
    ArchitectService.rollback,
)
_TELL_OF_ITSELF = ArchitectTool(
    "send_feedback",
    "Ask for a change",
    "Tell the Architect what this agent cannot learn by its state alone. Remarks are collected, counted "
    "and worked on together, within the budget of the day. The answer says how often this one was made.",
    arguments(
        {
            "message": MESSAGE,
            "severity": SEVERITY,
            "agent": text("your own name, or left out"),
            "version": text("your own version, or left out"),
        },
        "message",
    ),
    REMARK,
    ArchitectService.tell_of_itself,
)
_ASK = ArchitectTool(
    "ask_llm",
    "Ask a language model",
    "Ask the language model that Ratchet is configured with, and get its answer: as text, or as a value that fits "
    "a JSON Schema.",
    arguments(
        {
            "prompt": text("the question"),
            "system": text("the system prompt"),
            "schema": {"type": "object", "description": "a JSON Schema that the answer must fit"},
            "model": text("another model than the configured one, as Ratchet's settings call it"),
        },
        "prompt",
    ),
    ANSWER,
    ArchitectService.ask_llm,
)

_TOOLS: Mapping[str, ArchitectTool] = {
    tool.name: tool for tool in (_CREATE, _FEEDBACK, _LIST, _SHOW, _COMPARE, _PROMOTE, _ROLLBACK)
}
_TOOLS_FOR_AGENTS: Mapping[str, ArchitectTool] = {tool.name: tool for tool in (_TELL_OF_ITSELF, _ASK)}
