"""A protocol that was planned by hand: its files on a branch, its spec in the ledger, its agents in the settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ratchet.config.engine_settings import CommandSettings
from ratchet.kernel import RunStatus
from ratchet.ledger import EventFilter
from ratchet.ledger.events import Event, latest
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import add_protocol_steps
from ratchet.projects.clone import open_clone
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.protocols.spec import read_protocol_spec, record_spec, step_rows
from ratchet.runtime import Runtime
from tests.protocols.world import World
from tests.waiting import eventually

NAME = "0001-change"
SKIP: Mapping[str, Any] = {"policy": "skip"}


def step(prompt: str | None, *, qa: Mapping[str, Any] = SKIP, **more: Any) -> dict[str, Any]:
    """One step, and the text of its own file; without one it has none."""
    return {"engine_id": None, "qa": dict(qa), **more, "text": prompt}


def lay_out(
    world: World,
    steps: Mapping[str, Mapping[str, Any]],
    files: Mapping[str, str] | None = None,
    *,
    name: str = NAME,
    start: bool = True,
    **more: Any,
) -> int:
    """A planned protocol with steps `00-…`, `01-…` in their order, and further files of the repository."""
    root = f".protocols/{name}"
    committed = {f"{root}/{each}.md": f"# {each}\n" for each in ("plan", "context", "log")} | dict(
        files or {}
    )
    written = []
    for number, (agent, given) in enumerate(steps.items()):
        spec, called = dict(given), f"{number:02d}-{agent}"
        text = spec.pop("text")
        if text is not None:
            committed[f"{root}/{called}.md"] = text + "\n"
        written.append({"id": agent, "name": called, "prompt_ref": f"{called}.md", **spec})
    with world.ledger.read() as tx:
        project = get_project(tx, world.project_id)
    with open_clone(world.runtime, project) as clone:
        base = clone.fetch("main")
        content = {path: text.encode() for path, text in committed.items()}
        commit = clone.repository.commit_files(content, parent=base, message=f"plan {name}")
        clone.repository.advance(f"refs/heads/{name}", commit, expected=None)
    planned = read_protocol_spec({"steps": written}, root=root)
    with world.ledger.write(actor="test") as tx:
        run_id = create_protocol(
            tx, world.runtime, world.project_id, name, planned=True, base_commit=base, **more
        )
        record_spec(tx, run_id, planned)
        add_protocol_steps(tx, run_id, step_rows(planned))
        if start:
            start_protocol(tx, world.runtime, run_id)
    return run_id


def finished(world: World, run_id: int) -> RunStatus:
    """Where the protocol stands when nothing happens any more by itself."""
    eventually(lambda: world.stands(run_id))
    return world.protocol(run_id).status


def told(world: World, run_id: int, *types: str) -> list[Event]:
    """Its events of these types, oldest first."""
    with world.ledger.read() as tx:
        found = latest(tx.connection, where=EventFilter(run_id=run_id), limit=1000)
    return [each for each in reversed(found) if each.type in types]


def change_settings(runtime: Runtime, section: str, **values: Any) -> None:
    """Other values in one table of the settings, from now on."""
    changed = getattr(runtime.settings, section).model_copy(update=values)
    runtime.settings = runtime.settings.replace(**{section: changed})


def add_agent(runtime: Runtime, name: str, source: str, **more: Any) -> None:
    """An agent that is a small program."""
    argv = [sys.executable, "-c", source.replace("{", "{{").replace("}", "}}")]
    agents = {**runtime.settings.engines.command, name: CommandSettings(argv=argv, **more)}
    change_settings(runtime, "engines", command=agents)
