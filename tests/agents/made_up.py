"""Agents as an Architect leaves them: rows in the ledger, commits in a repository, directories with state and logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ratchet.agents.contract import AgentDirectory, place_of
from ratchet.ledger import Ledger
from ratchet.ledger.agents import (
    AgentRow,
    AgentVersion,
    add_version,
    create_agent,
    end_creation,
    get_agent,
    move_current,
)
from ratchet.ledger.runs import create_run
from ratchet.workspaces import Repository

SCHEMA = {"type": "object", "properties": {"greetings": {"type": "integer"}}, "required": ["greetings"]}


NAME = "greeter"


def tool(name: str = "greet", **arguments: str) -> dict[str, Any]:
    """A tool as a version is recorded with it; arguments by their types."""
    properties = {key: {"type": kind} for key, kind in (arguments or {"who": "string"}).items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": f"{name} somebody", "input_schema": schema, "output_schema": None}


def make_agent(ledger: Ledger, home: Path, name: str = NAME, *, runner: str = "# first\n") -> AgentRow:
    """A ready agent with its version 0.0.0."""
    place = place_of(home, name)
    with ledger.write() as tx:
        agent = create_agent(tx, name, "Greet people.", engine="codex")
        spec = {"action": "create", "agent": name, "message": "Greet people."}
        run_id = create_run(tx, "agent", name, spec=spec)
    with Repository.create(place.repository):
        pass
    make_version(ledger, home, name, "0.0.0", runner=runner, parent=None, summary="the first", run_id=run_id)
    with ledger.write() as tx:
        end_creation(tx, agent.id, run_id=run_id)
        return get_agent(tx, name)


def make_version(
    ledger: Ledger,
    home: Path,
    name: str,
    version: str,
    *,
    parent: str | None,
    runner: str | bytes = "# next\n",
    summary: str = "a change",
    tools: list[dict[str, Any]] | None = None,
    run_id: int | None = None,
    promoted: bool = True,
) -> AgentVersion:
    """A version with its commit, its tag if that is free, and its directory; current unless it stands beside."""
    place = place_of(home, name)
    code = runner if isinstance(runner, bytes) else runner.encode()
    files = {"runner.py": code, "metadata.json": json.dumps({"version": version}).encode()}
    with Repository.open(place.repository) as repository:
        commit = repository.commit_files(files, parent=parent, message=summary)
        if repository.ref(f"refs/tags/v{version}") is None:
            repository.advance(f"refs/tags/v{version}", commit, expected=None)
    _fill(place, commit)
    with ledger.write() as tx:
        agent = get_agent(tx, name)
        shapes = [tool()] if tools is None else tools
        made = add_version(
            tx, agent, commit, version, parent=parent, summary=summary, tools=shapes, run_id=run_id
        )
        if promoted:
            move_current(tx, agent, commit, expected=agent.current, why="promoted")
    return made


def _fill(place: AgentDirectory, commit: str) -> None:
    directory = place.version(commit)
    (directory / "logs").mkdir(parents=True)
    (directory / "state_schema.json").write_text(json.dumps(SCHEMA))


def make_two_versions(ledger: Ledger, home: Path) -> AgentRow:
    """An agent at 0.1.0, made from 0.0.0."""
    first = make_agent(ledger, home, runner="print('hello')\n")
    make_version(
        ledger,
        home,
        NAME,
        "0.1.0",
        parent=first.current,
        runner="print('hi')\n",
        summary="less formal",
        tools=[tool(), tool("wave")],
    )
    with ledger.read() as tx:
        return get_agent(tx, NAME)


def current(ledger: Ledger) -> str:
    with ledger.read() as tx:
        return str(get_agent(tx, NAME).current)
