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
        "What the sessions of an attempt said and did, a part at a time: go on with `next_offset` until it has ended.",
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
        "list_research_tasks",
        "List research tasks",
        "GET /research/tasks",
        "The installed research tasks, each with its score and its specialists.",
    ),
    _read(
        "get_research",
        "Show a research run",
        "GET /research/{run}",
        "Where a research run stands: baseline, best, trials by how they ended, what is in flight, cost.",
    ),
    _read(
        "list_trials",
        "List trials",
        "GET /research/{run}/trials",
        "The trials of a research run, the last one first: hypothesis, score, and why each was kept or not.",
    ),
    _read(
        "get_trial",
        "Show a trial",
        "GET /research/{run}/trials/{exp}",
        "One trial with its measurements and, if it was kept, its certificate, which is checked anew.",
    ),
    _read(
        "read_trial_diff",
        "Read the change of a trial",
        "GET /research/{run}/trials/{exp}/diff",
        "How the files of a trial differ from those of its parent, as a patch.",
    ),
    _read(
        "get_leaderboard",
        "Show the leaderboard",
        "GET /research/{run}/leaderboard",
        "What a research run has kept, the best first.",
    ),
    _read(
        "get_lineage",
        "Show the lineage of a trial",
        "GET /research/{run}/tree",
        "The trials that a trial came from and its newest children; of the best, if none is named.",
    ),
    _read(
        "get_knowledge",
        "Show what research has learned",
        "GET /research/{run}/knowledge",
        "The line of the best, what was tried last, and the lessons of the specialists.",
    ),
    _read(
        "list_near_misses",
        "List near misses",
        "GET /research/{run}/misses",
        "What was nearly kept, and why it was not.",
    ),
    _read(
        "get_research_cost",
        "Show what research has cost",
        "GET /research/{run}/cost",
        "Tokens, money and time of a research run: in all, for each trial and keep, and by specialist.",
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
