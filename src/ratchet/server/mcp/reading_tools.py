"""The tools that only look. They are what is offered unless somebody allows more."""

from __future__ import annotations

from typing import Any

from ratchet.server.every_operation import EVERY
from ratchet.server.mcp.api import LONGEST_ANSWER
from ratchet.server.mcp.tool import LONGEST_TEXT, Declared


def _read(name: str, title: str, endpoint: str, description: str, **more: Any) -> Declared:
    return Declared(name, title, description, endpoint, reads=True, repeatable=True, **more)


_PROTOCOLS = (
    _read(
        "get_protocol_ci",
        "Show what CI says",
        "GET /protocols/{protocol_id}/ci",
        "What CI says of a protocol, by commit and by check.",
    ),
    _read(
        "get_step",
        "Show a step",
        "GET /steps/{step_id}",
        "One step of any run with its attempts, the last one first: verdicts, use and sessions.",
    ),
    _read(
        "get_attempt",
        "Show an attempt",
        "GET /attempts/{attempt_id}",
        "One attempt at a step: how it ended, its verdict, what it used.",
    ),
    _read(
        "read_attempt_log",
        "Read the log of an attempt",
        "GET /attempts/{attempt_id}/log",
        "What the sessions of an attempt said and did, a part at a time: continue with `next_offset` until the end.",
        narrowed={
            "max_bytes": {
                "type": "integer",
                "minimum": 1,
                "maximum": LONGEST_ANSWER // 2,
                "default": LONGEST_TEXT,
                "description": "how much at most; a single line may be longer",
            }
        },
    ),
    _read(
        "read_attempt_diff",
        "Read the change of an attempt",
        "GET /attempts/{attempt_id}/diff",
        "What an attempt changed, kept or not, as a patch.",
    ),
)
_RUNS = (
    _read(
        "read_artifact",
        "Read an artifact",
        "GET /artifacts/{sha256}",
        "The content of an artifact as text, a part at a time.",
    ),
    _read(
        "list_events",
        "List events",
        "GET /events",
        "What happened, newest first, or oldest first after the number `since`. A `type` such as run.* means every "
        "type that starts so.",
    ),
)
_RESEARCH = (
    _read(
        "read_trial_diff",
        "Read the change of a trial",
        "GET /research/{run}/trials/{exp}/diff",
        "How the files of a trial differ from those of its parent, as a patch.",
    ),
    _read(
        "read_research_report",
        "Read the report of a research run",
        "GET /research/{run}/report",
        "A research run as one HTML page for a person, a part at a time; get_research says the same in short.",
    ),
)

READING: tuple[Declared, ...] = (
    *_PROTOCOLS,
    *_RUNS,
    *_RESEARCH,
    *(tool for tool in map(Declared.of, EVERY) if tool is not None and tool.reads),
)
