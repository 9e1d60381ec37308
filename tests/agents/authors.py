"""An engine for the tests of agents: it does what a few plain words ask for, and may die on its way.

The prompt alone tells it what to do, so that any worker process can carry a run. What it does is marked in a file of
the home, and a file there may name the place at which the whole process is to die, once.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

from ratchet.agentkit import StateStore
from ratchet.agents.change import change_agent
from ratchet.agents.staging_area import announce
from ratchet.engines import Capabilities, Engine, Readiness, Request, Session
from ratchet.engines.registry import EngineContext
from ratchet.kernel import Usage
from ratchet.runtime import JobContext
from tests.agents.specimens import files, write_agent
from tests.runtime.deaths import pass_by
from tests.waiting import eventually

PLACES = (
    "session",
    "before the session",
    "in the session",
    "after the session",
    "session ended",
    "checking",
    "checked",
    "pushed",
    "placed",
    "recorded",
)


class Author:
    """Understands a handful of requests; see `_write`."""

    name = "author"
    capabilities = Capabilities(edits_files=True, structured_output=True, reports_usage=True)

    def __init__(self, home: Path) -> None:
        self.home = home

    async def propose(self, request: Request) -> Session:
        pass_by(self.home, "before the session")
        assert request.workspace is not None
        asked = re.split(r"What the agent should do:|Feedback \(.*\):", request.prompt)[-1]
        told = asked.split("Earlier tries did not pass.")
        (self.home / "prompt").write_text(request.prompt)
        if (message := request.workspace / "logs" / "message.txt").exists():
            shutil.copy(message, self.home)
        wanted = told[0].strip()
        if wanted.startswith("meet "):
            await self._meet(wanted.split())
        answer = _write(request.workspace, wanted, again=len(told) > 1)
        pass_by(self.home, "in the session")
        pass_by(self.home, "after the session")
        return Session(
            self.name,
            text="done",
            output=answer,
            usage=Usage(input_tokens=10, output_tokens=5),
            transcript=b"{}\n",
        )

    async def check(self) -> Readiness:
        return Readiness(True, "always")

    async def _meet(self, words: list[str]) -> None:
        """`meet MINE OTHER`: wait in the session until the other one has come to its own."""
        (self.home / words[1]).touch()
        await asyncio.to_thread(eventually, (self.home / words[2]).exists)


def _write(place: Path, wanted: str, *, again: bool) -> dict[str, Any]:
    """Do what is asked. `again` says that an earlier try failed: what was wrong is done right then."""
    answer = {"decision": "code", "bump": "patch", "summary": wanted.splitlines()[0][:100], "refused": None}
    match wanted.splitlines()[0].split():
        case ["In", "production", *_]:
            _change(place / "words.py", r"GREETING = .*", "GREETING = 'ahoy'")
        case ["create", greeting]:
            write_agent(place, greeting=greeting)
            return {"summary": f"a greeter that says {greeting}", "refused": None}
        case ["create", "broken", what]:
            write_agent(place, broken=None if again else what)
            return {"summary": "a greeter", "refused": None}
        case ["say", greeting]:
            _change(place / "words.py", r"GREETING = .*", f"GREETING = {greeting!r}")
        case ["add", "shout"]:
            write = files(tools=("greet", "count", "shout"))["runner.py"]
            (place / "runner.py").write_text(write)
            answer["bump"] = "minor"
        case ["drop", "count"]:
            (place / "runner.py").write_text(files(tools=("greet",))["runner.py"])
        case ["remember", lesson]:
            state = json.loads((place / "state.json").read_text())
            state["lessons"].append(lesson)
            (place / "state.json").write_text(json.dumps(state))
            answer["decision"] = "state"
        case ["forget", "brief"]:
            state = json.loads((place / "state.json").read_text())
            state["lessons"].remove("be brief")
            (place / "state.json").write_text(json.dumps(state))
            answer["decision"] = "state"
        case ["forget", "everything"]:
            (place / "state.json").write_text('{"greeted": -1, "lessons": []}')
            answer["decision"] = "state"
        case ["rename", "the", "counter"]:
            _rename_counter(place)
        case ["break", "the", "tests"]:
            _change(place / "tests.py", "== f", "!= f")
        case ["break", "the", "tests", "once"]:
            _change(place / "words.py", r"GREETING = .*", "GREETING = 'fixed'")
            if not again:
                _change(place / "tests.py", "== f", "!= f")
        case ["break", "the", "syntax"]:
            (place / "runner.py").write_text("def greet(:\n")
        case ["delete", name]:
            (place / name).unlink()
        case ["edit", "git"]:
            (place / ".git" / "hooks").mkdir(exist_ok=True)
            (place / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\nexit 1\n")
        case ["lie"]:
            _change(place / "words.py", r"GREETING = .*", "GREETING = 'lied'")
            answer["decision"] = "nothing"
        case ["link", "out"]:
            (place / "secrets").symlink_to("/etc/passwd")
        case ["hoard"]:
            with (place / "state.json").open("r+b") as file:
                file.truncate(1 << 40)
            answer["decision"] = "state"
        case ["quarrel", "once"]:
            _change(place / "words.py", r"GREETING = .*", "GREETING = 'settled'")
            if not again:
                _count_at_once(place)
        case ["refuse"]:
            answer["refused"] = "that makes no sense"
        case _:
            answer["decision"] = "nothing"
    return answer


def _change(path: Path, pattern: str, new: str) -> None:
    path.write_text(re.sub(pattern, new, path.read_text(), count=1))


def _count_at_once(place: Path) -> None:
    """Change the state where the live version changes its own in the same moment."""
    (place / "state.json").write_text('{"greeted": 100, "lessons": []}')
    with StateStore(place.with_name(place.name.removesuffix("-staging"))).edit() as live:
        live["greeted"] += 1


def _rename_counter(place: Path) -> None:
    """A schema that older states do not fit, with the way from them to it."""
    for name in ("runner.py", "state_schema.json", "state.json"):
        path = place / name
        path.write_text(path.read_text().replace("greeted", "greetings"))
    (place / "migrate.py").write_text(
        "def migrate(state):\n"
        "    if 'greeted' in state:\n"
        "        state = {**state, 'greetings': state['greeted']}\n"
        "        del state['greeted']\n"
        "    return state\n"
    )


async def change(job: JobContext) -> Any:
    """The real flow, with this engine."""
    home = job.runtime.home

    def open_author(_name: str | None, _surroundings: EngineContext) -> Engine:
        return Author(home)

    def tell(job: JobContext, stage: str) -> None:
        announce(job, stage)
        pass_by(home, stage)

    return await change_agent(job, open_author, tell)
