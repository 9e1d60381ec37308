"""The versions of an agent: which one is current, which led to it, and which stand beside as variants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agents.place import place_of
from ratchet.agents.references import find_version
from ratchet.agents.tags import tag_for, tags_of
from ratchet.agents.views.words import bounded
from ratchet.kernel import iso
from ratchet.ledger.agents import Agent, AgentVersion, get_agent, line_of, list_versions

if TYPE_CHECKING:
    from ratchet.ledger import Transaction


def versions(
    tx: Transaction, name: str, *, before: int | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """Versions, newest first; pass the last `id` as `before` for the next page. Raises `NotFound`.

    `on_line` says that a version is the current one or led to it; others are variants, or were rolled back.
    """
    agent = get_agent(tx, name)
    found = list_versions(tx, agent.id, before=before, limit=limit)
    line = line_of(tx, agent, down_to=found[-1].id) if found else set()
    tags = tags_of(tx, agent.id, found)
    return [
        {
            **version_record(version, agent),
            "on_line": version.commit in line,
            "tag": tags[version.commit],
        }
        for version in found
    ]


def one_version(tx: Transaction, home: Path, name: str, wanted: str) -> dict[str, Any]:
    """One version with its tools, as its Runner lists them. Raises `NotFound`."""
    agent = get_agent(tx, name)
    found = find_version(tx, agent, wanted)
    return {
        **version_record(found, agent),
        "on_line": found.commit in line_of(tx, agent, down_to=found.id),
        "tag": str(tag_for(tx, agent.id, found.version, found.commit)),
        "directory": str(place_of(home, name).version(found.commit)),
        "tools": found.tools,
    }


def version_record(version: AgentVersion, agent: Agent) -> dict[str, Any]:
    """A version as JSON. `tools` are the names of its Runner's tools."""
    return {
        "id": version.id,
        "version": version.version,
        "commit": version.commit,
        "parent": version.parent,
        "is_current": version.commit == agent.current,
        "status": str(version.status),
        "reason": bounded(version.reason),
        "summary": bounded(version.summary),
        "tools": tool_names(version),
        "run": version.run_id,
        "simulated": version.simulated,
        "created_at": iso(version.created_at),
        "promoted_at": None if version.promoted_at is None else iso(version.promoted_at),
    }


def tool_names(version: AgentVersion) -> list[str]:
    return [str(tool["name"]) for tool in version.tools]


def graph(shown: Sequence[dict[str, Any]]) -> list[str]:
    """The commits of `versions` as lines beside them, as `git log --graph` draws them.

    `@` is the current version and `o` any other; a version is joined by `|` to the one it was made from, further down.
    """
    drawn: list[str] = []
    # What each column waits for: the commit that is drawn in it next.
    columns: list[str | None] = []
    for version in shown:
        own = _column(columns, version["commit"])
        marks = ["|" if wanted is not None else " " for wanted in columns]
        marks[own] = "@" if version["is_current"] else "o"
        drawn.append(" ".join(marks).rstrip())
        columns = [None if wanted == version["commit"] else wanted for wanted in columns]
        if version["parent"] not in columns:
            columns[own] = version["parent"]
    return drawn


def _column(columns: list[str | None], commit: str) -> int:
    """The first column that waits for `commit`; else one that is free, made if there is none."""
    if commit in columns:
        return columns.index(commit)
    if None not in columns:
        columns.append(None)
    return columns.index(None)
