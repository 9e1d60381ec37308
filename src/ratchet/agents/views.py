"""Agents as they are shown: what each is for, where its address leads, and what happened to it last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agents.addresses import addresses
from ratchet.agents.contract import place_of
from ratchet.agents.jobs import RUN_KIND
from ratchet.agents.versions import compare_tools, find_version, shapes_of, tag_for, tags_of
from ratchet.kernel import Conflict, NotFound, Outcome, RatchetError, iso
from ratchet.ledger.agents import (
    Agent,
    AgentVersion,
    current_versions,
    get_agent,
    get_version,
    line_of,
    list_agents,
    list_versions,
    with_blocked,
)
from ratchet.ledger.agents import find_version as version_at
from ratchet.ledger.runs import get_run, latest_attempts, latest_steps, list_runs

if TYPE_CHECKING:
    from ratchet.agentkit import Change
    from ratchet.config.workflow_settings import Agents
    from ratchet.ledger import ArtifactStore, Attempt, Run, Transaction


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
        {**version_record(version, agent), "on_line": version.commit in line, "tag": tags[version.commit]}
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


def agent_runs(
    tx: Transaction, name: str, *, before: int | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """The runs on the agent of that name, newest first; pass the last `run` as `before` for the next page.

    A name that was given again after a deletion has the runs of both.
    """
    return [run_record(run) for run in list_runs(tx, kind=RUN_KIND, name=name, before=before, limit=limit)]


def run_record(run: Run) -> dict[str, Any]:
    """A creation or a feedback as JSON. `result` says what was decided, once it is completed."""
    spec = run.spec if isinstance(run.spec, dict) else {}
    return {
        "run": run.id,
        "action": spec.get("action"),
        "status": str(run.status),
        "reason": bounded(run.reason),
        "message": bounded(spec.get("message")),
        "severity": spec.get("severity"),
        "source": spec.get("source"),
        "result": run.result,
        "simulated": run.simulated,
        "used_recording": run.used_recording,
        "created_at": iso(run.created_at),
        "ended_at": None if run.ended_at is None else iso(run.ended_at),
    }


LONGEST = 4_000
_CUT = " …"


def bounded(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else f"{text[:LONGEST]}{_CUT}"


_LAST_RUNS = 5


def agents(tx: Transaction, *, after: str = "", limit: int = 100) -> list[dict[str, Any]]:
    """Agents by their names, those after `after`."""
    found = with_blocked(tx, list_agents(tx, after=after, limit=limit))
    current = current_versions(tx, found)
    return [agent_record(agent, current.get(agent.id)) for agent in found]


def one_agent(tx: Transaction, home: Path, settings: Agents, name: str) -> dict[str, Any]:
    """An agent with its current version, where it answers, where it lies, and its last runs. Raises `NotFound`."""
    [agent] = with_blocked(tx, [get_agent(tx, name)])
    current = current_versions(tx, [agent]).get(agent.id)
    return {
        **agent_record(agent, current),
        "address": addresses(home, settings, name),
        "directory": str(place_of(home, name).root),
        "current": None if current is None else version_record(current, agent),
        "runs": agent_runs(tx, name, limit=_LAST_RUNS),
    }


def agent_record(agent: Agent, current: AgentVersion | None) -> dict[str, Any]:
    """An agent as JSON. `version` and `commit` are those of the version that its address leads to."""
    return {
        "name": agent.name,
        "description": bounded(agent.description),
        "status": str(agent.status),
        "reason": bounded(agent.reason),
        "version": None if current is None else current.version,
        "commit": agent.current,
        "pinned": agent.pinned,
        "engine": agent.engine,
        "model": agent.model,
        "simulated": agent.simulated,
        "created_at": iso(agent.created_at),
        "updated_at": iso(agent.updated_at),
    }


def change_record(change: Change) -> dict[str, Any]:
    """`restored` is the change whose state came back, and `recovered` that it was not reported when it happened."""
    return {
        "number": change.number,
        "at": change.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "by": change.by,
        "restored": change.restored,
        "recovered": change.recovered,
    }


_LOOKED_AT = 5


def checks(
    tx: Transaction, artifacts: ArtifactStore, name: str, version: str | None = None
) -> dict[str, Any] | None:
    """The checks of a version, of the current one if none is named, in their order; None if none are on record.

    Each has its `outcome`, its `seconds` and what was seen; the canary calls have their `answers`.
    """
    found = find_version(tx, get_agent(tx, name), version or "current")
    attempt = None if found.run_id is None else _passed(tx, found.run_id)
    if attempt is None:
        return None
    return {
        "version": found.version,
        "commit": found.commit,
        "attempt": attempt.id,
        "reason": attempt.verdict.get("reason"),
        "checks": _sections(artifacts, attempt.verdict.get("report")),
    }


def _passed(tx: Transaction, run_id: int) -> Attempt | None:
    for step in latest_steps(tx, run_id, limit=_LOOKED_AT):
        for attempt in latest_attempts(tx, step.id, limit=_LOOKED_AT):
            if attempt.outcome is Outcome.PASSED and isinstance(attempt.verdict, dict):
                return attempt
    return None


def _sections(artifacts: ArtifactStore, report: Any) -> list[dict[str, Any]]:
    """None where the report was deleted to make room, or is no report of ours."""
    try:
        sections = json.loads(artifacts.read(str(report)))["checks"]
        return [{"check": name, **section} for name, section in sections.items()]
    except (RatchetError, ValueError, LookupError, TypeError, AttributeError):
        return []


MOST_DIFF = 1_000_000
_MOST_FILES = 1_000


@dataclass(frozen=True, slots=True)
class ComparedVersions:
    """Two versions of an agent, found in the ledger; `comparison` reads the rest from its repository."""

    agent: Agent
    old: AgentVersion
    new: AgentVersion


def find_compared(
    tx: Transaction, name: str, old: str | None = None, new: str | None = None
) -> ComparedVersions:
    """The versions to compare. `new` is the current one if it is not named, and `old` what `new` was made from.

    Raises `NotFound`, and `Conflict` for a first version, which was made from nothing.
    """
    agent = get_agent(tx, name)
    latter = find_version(tx, agent, "current" if new is None else new)
    former = _parent(tx, agent, latter) if old is None else find_version(tx, agent, old)
    return ComparedVersions(agent, former, latter)


def comparison(home: Path, compared: ComparedVersions) -> dict[str, Any]:
    """Both versions, what became of the tools, and the difference of the files as a patch.

    A very long patch is cut, which `is_cut` says. Bytes that are no text are marked.
    """
    old, new = compared.old, compared.new
    # Reads git, which no other view does.
    from ratchet.workspaces import Repository

    with Repository.open(place_of(home, compared.agent.name).repository) as repository:
        files = [change.path for change in repository.changes(old.commit, new.commit)]
        patch = repository.diff(old.commit, new.commit)
    text = patch.encode(errors="surrogateescape").decode(errors="replace")
    return {
        "agent": compared.agent.name,
        "old": version_record(old, compared.agent),
        "new": version_record(new, compared.agent),
        "tools": _tool_changes(old, new),
        "files": files[:_MOST_FILES],
        "diff": text[:MOST_DIFF],
        "is_cut": len(text) > MOST_DIFF or len(files) > _MOST_FILES,
    }


def _parent(tx: Transaction, agent: Agent, version: AgentVersion) -> AgentVersion:
    if version.parent is None:
        raise Conflict(
            f"version {version.version} of {agent.name} is a first one, made from nothing",
            hint=f"name two versions; `ratchet agent versions {agent.name}` lists them",
        )
    return get_version(tx, agent.id, version.parent)


def _tool_changes(old: AgentVersion, new: AgentVersion) -> dict[str, Any]:
    changes = compare_tools(shapes_of(old.tools), shapes_of(new.tools))
    return {**asdict(changes), "least": str(changes.least)}


def outcome(tx: Transaction, home: Path, settings: Agents, run_id: int) -> dict[str, Any]:
    """The run, the version that it began from, and the agent as it is now; no agent if that was deleted meanwhile."""
    run = get_run(tx, run_id)
    try:
        agent = one_agent(tx, home, settings, run.name)
    except NotFound:
        agent = None
    return {**run_record(run), "from_version": agent and _before(tx, run), "agent": agent}


def _before(tx: Transaction, run: Run) -> str | None:
    """The number of the version that the run's own version was made from."""
    agent_id = get_agent(tx, run.name).id
    commit = run.result.get("commit") if isinstance(run.result, dict) else None
    made = version_at(tx, agent_id, commit) if commit else None
    parent = version_at(tx, agent_id, made.parent) if made is not None and made.parent else None
    return None if parent is None else parent.version
