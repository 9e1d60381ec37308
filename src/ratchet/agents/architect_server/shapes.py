"""JSON Schemas of what the Architect's tools take and tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.agents.architect import Severity

Schema = dict[str, Any]

LONGEST_WAIT = 600
A_VERSION = "a number such as 0.1.0, the first digits of a commit, or latest"


def text(description: str) -> Schema:
    return {"type": "string", "description": description}


def count(description: str, *, most: int, usual: int) -> Schema:
    return {
        "type": "integer",
        "minimum": 1,
        "maximum": most,
        "default": usual,
        "description": description,
    }


def told(properties: Mapping[str, Schema]) -> Schema:
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
        "description": "how long to wait for what comes of it; it goes on in any case",
    },
}
"""How an engine's work is wanted."""

_OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
_MAYBE: Schema = {"type": ["string", "null"]}
RUN = told(
    {
        "run_id": {"type": "integer"},
        "status": text("completed, failed, or how far it is"),
        "reason": {**_MAYBE, "description": "why it failed or stands still"},
        "result": {"description": "what was decided, and the version that came of it; null until then"},
        "simulated": {"type": "boolean"},
    }
)
AGENTS = told({"agents": _OBJECTS})
_AGENT: Mapping[str, Schema] = {
    "name": text("its name"),
    "status": text("ready, or how far it is"),
    "version": {**_MAYBE, "description": "the number of the version that its address leads to"},
    "commit": {**_MAYBE, "description": "and its commit"},
}
AGENT = told({**_AGENT, "versions": _OBJECTS})
MOVED = told({**_AGENT, "before": {**_MAYBE, "description": "the commit that its address led to before"}})
COMPARISON = told(
    {
        "old": {"type": "object"},
        "new": {"type": "object"},
        "tools": {"type": "object"},
        "files": {"type": "array", "items": {"type": "string"}},
        "diff": text("a patch"),
        "is_cut": {"type": "boolean", "description": "whether the patch is longer than what is shown"},
    }
)
ANSWER = told(
    {
        "text": text("what the model said"),
        "output": {"description": "its answer to the schema; null without one"},
        "simulated": {"type": "boolean", "description": "whether no model has given it"},
    }
)
