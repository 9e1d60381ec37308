"""A home with agents for tests of the host: their servers need no library, so they start in no time."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.agentkit import StateStore
from ratchet.agents.contract import Role, place_of
from ratchet.agents.servers import Called, call_tool
from ratchet.config import Loaded
from ratchet.ledger import EventFilter, events
from ratchet.ledger.agents import add_version, create_agent, end_creation, get_agent, move_current
from ratchet.ledger.runs import create_run
from ratchet.runtime import Runtime
from tests.agents.servers.versions import processes_in, write_version

NAME = "greeter"
QUICK = {
    "agents.port": 0,
    "agents.restart_seconds": 0.1,
    "agents.crashes": 3,
}

RUNNER = """
import os, threading, time
from pathlib import Path
from ratchet.agentkit import StateStore
from tiny import serve

def say(**_):
    return {word!r}

def note(key, seconds=0):
    Path("begun").touch()
    time.sleep(seconds)
    with StateStore(Path.cwd()).edit(by="runner") as state:
        state[key] = {word!r}
    return key

def crash(**_):
    os._exit(7)

def crash_later(**_):
    threading.Timer(0.05, os._exit, [7]).start()
    return "soon"

serve(say, note, crash, crash_later)
"""
TOOLS = [
    {"name": name, "description": "", "input_schema": {"type": "object"}, "output_schema": None}
    for name in ("say", "note", "crash")
]
TUNER = "from tiny import serve\n\ndef feedback(text):\n    return text\n\nserve(feedback)\n"
CANNOT_START = "raise SystemExit('nothing to say')\n"


@dataclass
class Home:
    runtime: Runtime
    loaded: Loaded
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def directory(self, commit: str, name: str = NAME) -> Path:
        return place_of(self.runtime.home, name).version(commit)

    def make_agent(self, word: str = "one", name: str = NAME, runner: str | None = None) -> str:
        """A ready agent that says `word`; the commit of its version."""
        with self.runtime.ledger.write() as tx:
            agent = create_agent(tx, name, "says a word")
            run_id = create_run(tx, "agent", name, spec={"action": "create", "agent": name})
        commit = self.make_version(word, name=name, runner=runner)
        with self.runtime.ledger.write() as tx:
            move_current(tx, get_agent(tx, name), commit, expected=None, why="promoted")
            end_creation(tx, agent.id, run_id=run_id)
        return commit

    def make_version(
        self, word: str, *, name: str = NAME, parent: str | None = None, runner: str | None = None
    ) -> str:
        """A version that is not current yet; its commit."""
        commit = hashlib.sha1(str(next(self._numbers)).encode()).hexdigest()
        directory = self.directory(commit, name)
        write_version(directory, runner or RUNNER.format(word=word), TUNER)
        (directory / "state_schema.json").write_text(json.dumps({"type": "object"}))
        with self.runtime.ledger.write() as tx:
            agent = get_agent(tx, name)
            add_version(tx, agent, commit, "0.0.0", parent=parent, summary=word, tools=TOOLS, run_id=None)
        return commit

    def move(self, commit: str, *, name: str = NAME, why: str = "promoted") -> None:
        with self.runtime.ledger.write() as tx:
            agent = get_agent(tx, name)
            move_current(tx, agent, commit, expected=agent.current, why=why)

    def current(self, name: str = NAME) -> str | None:
        with self.runtime.ledger.read() as tx:
            return get_agent(tx, name).current

    def told(self, kind: str) -> list[dict[str, Any]]:
        """What was recorded of that kind."""
        with self.runtime.ledger.read() as tx:
            found = events.since(tx.connection, where=EventFilter(type=f"agent.{kind}"))
        return [event.data for event in found]

    def has_begun(self, commit: str) -> bool:
        """Whether a call of `note` has come to this version."""
        return (self.directory(commit) / "begun").exists()

    def state(self, commit: str) -> Any:
        return StateStore(self.directory(commit)).read()

    def processes(self, name: str = NAME) -> list[int]:
        """The processes of all versions of an agent."""
        versions = [path for path in place_of(self.runtime.home, name).root.iterdir() if path.is_dir()]
        return [pid for version in versions for pid in processes_in(version)]


def url_of(
    base: str | None, version: str | None = None, *, name: str = NAME, role: Role = Role.RUNNER
) -> str:
    who = name if version is None else f"{name}@{version}"
    return f"{base}/agents/{who}/{role}/mcp"


async def call(
    base: str | None, tool: str = "say", *, version: str | None = None, **arguments: Any
) -> Called:
    return await call_tool(url_of(base, version), tool, arguments, 60)


async def said(base: str | None, *, version: str | None = None, name: str = NAME) -> Any:
    """The word that the agent says now."""
    called = await call_tool(url_of(base, version, name=name), "say", {}, 60)
    assert not called.failed, called.text
    return called.structured["result"]
