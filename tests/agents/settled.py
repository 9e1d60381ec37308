"""An agent that is simply there, for tests that are not about how it came to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.agentkit import StateStore
from ratchet.agents.contract import IGNORED, place_of
from ratchet.agents.staging_area import check_out, commit_tree
from ratchet.ledger.agents import add_version, create_agent, end_creation, get_agent, move_current
from ratchet.ledger.runs import create_run
from ratchet.runtime import Runtime
from ratchet.workspaces import Repository
from tests.agents.specimens import STATE, files

SHAPES = [
    {
        "name": "greet",
        "description": "Greet somebody.",
        "input_schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
        "output_schema": None,
    },
    {
        "name": "count",
        "description": "How often somebody was greeted.",
        "input_schema": {"type": "object", "properties": {}},
        "output_schema": None,
    },
]


def settle(runtime: Runtime, name: str = "greeter", **more: Any) -> str:
    """The greeter of `specimens.files(**more)`, current and ready without a session or a check. Its commit."""
    place = place_of(runtime.home, name)
    place.root.mkdir(parents=True)
    content = {path: text.encode() for path, text in files(**more).items() if path != "state.json"}
    content[".gitignore"] = IGNORED.encode()
    with Repository.create(place.repository) as repository:
        commit = commit_tree(repository, content, parent=None, message="The first version")
        repository.advance("refs/heads/main", commit, expected=None)
        check_out(repository, commit, place.version(commit))
    StateStore(place.version(commit)).begin(dict(STATE), by="test")
    with runtime.ledger.write() as tx:
        agent = create_agent(tx, name, "greets people")
        run_id = create_run(tx, "agent", name, spec={"action": "create", "agent": name})
        add_version(tx, agent, commit, "0.0.0", parent=None, summary="the first", tools=SHAPES, run_id=run_id)
        end_creation(tx, agent.id, run_id=run_id)
        move_current(tx, get_agent(tx, name), commit, expected=None, why="promoted")
    return commit


def tree(root: Path) -> set[str]:
    """What lies in an agent's place."""
    return {path.name for path in root.iterdir() if not path.name.startswith(".")}
