"""An agent's life with nothing simulated but the model: the real Codex CLI makes it, teaches it and rewrites it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.architect import AgentRequest, create_agent, send_feedback
from ratchet.agents.contract import Role, place_of
from ratchet.agents.jobs import add_kinds
from ratchet.agents.servers import Launch, call_tool, serving
from ratchet.kernel import RunStatus
from ratchet.ledger import Run
from ratchet.ledger.runs import get_run
from ratchet.ledger.usage import list_sessions
from ratchet.modelserver import ModelServer, Script, Turn, answer, call, call_freely
from ratchet.runtime import Kinds, Runtime, Worker, open_ledger, open_runtime
from tests.agents.specimens import files
from tests.engines.contract import KEY
from tests.modelserver.fixtures import model_server  # noqa: F401 - a fixture
from tests.runtime.worker_process import load
from tests.waiting import eventually

pytestmark = [pytest.mark.soak, pytest.mark.parametrize("url", ["sqlite"], indirect=True)]

# A model that Codex offers its tool for patches.
_MODEL = "gpt-5.5"


def writes(content: dict[str, str]) -> Turn:
    """One shell command that writes all these files."""
    return call(
        "exec_command", cmd="\n".join(f"cat > {name} <<'END'\n{text}END" for name, text in content.items())
    )


def patches(name: str, *lines: tuple[str, str]) -> Turn:
    """One patch that replaces lines of a file, given as (old, new)."""
    hunks = "".join(f"@@\n-{old}\n+{new}\n" for old, new in lines)
    return call_freely("apply_patch", f"*** Begin Patch\n*** Update File: {name}\n{hunks}*** End Patch\n")


def decides(decision: str, summary: str, bump: str = "patch") -> Turn:
    return answer({"decision": decision, "bump": bump, "summary": summary, "refused": None})


class Life:
    """A home in which Codex is configured as a person would, and a worker."""

    def __init__(self, home: Path, url: str, server: ModelServer) -> None:
        self._server = server
        (home / "ratchet.toml").write_text(
            f'[engines.codex]\nbase_url = "{server.openai_url("life")}"\nmodel = "{_MODEL}"\n'
            'key_variable = "MODEL_KEY"\n'
        )
        loaded = load(home, url)
        kinds = Kinds()
        add_kinds(kinds)
        self.runtime: Runtime = open_runtime(loaded, open_ledger(loaded), kinds)
        self._worker = Worker(self.runtime)
        self._worker.start()

    def close(self) -> None:
        self._worker.stop(drain_seconds=0)
        self.runtime.ledger.close()

    def play(self, *turns: Turn) -> Script:
        return self._server.script("life", list(turns))

    def ended(self, run_id: int) -> Run:
        def look() -> Run:
            with self.runtime.ledger.read() as tx:
                return get_run(tx, run_id)

        eventually(lambda: look().status.final)
        assert look().status is RunStatus.COMPLETED, look().reason
        return look()

    def told(self, message: str) -> Any:
        return self.ended(send_feedback(self.runtime, "greeter", message, actor="test")).result

    def directory(self, commit: str) -> Path:
        return place_of(self.runtime.home, "greeter").version(commit)

    def git(self, *words: str) -> list[str]:
        repository = place_of(self.runtime.home, "greeter").repository
        done = subprocess.run(["git", "-C", repository, *words], check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    def greeted(self, commit: str) -> str:
        """What the Runner of a version answers to a real MCP client."""
        launch = Launch("greeter", commit, self.directory(commit), 9)

        async def ask() -> str:
            settings = self.runtime.settings.agents
            async with serving(launch, Role.RUNNER, settings) as server:
                return (await call_tool(server.url, "greet", {"name": "Ada"}, 30)).text

        return asyncio.run(ask())


@pytest.fixture
def life(
    url: str,
    tmp_path: Path,
    model_server: ModelServer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Life]:
    monkeypatch.setenv("MODEL_KEY", KEY)
    lived = Life(tmp_path, url, model_server)
    yield lived
    lived.close()


@pytest.mark.soak
def test_codex_makes_an_agent_teaches_it_and_rewrites_it(life: Life) -> None:
    script = life.play(
        writes(files(greeting="hello")), answer({"summary": "A greeter that says hello.", "refused": None})
    )
    wanted = AgentRequest(name="greeter", description="Greet people by name, and count how often.")
    born = life.ended(create_agent(life.runtime, wanted, actor="test")).result
    assert (born["version"], born["promoted"]) == ("0.0.0", True)
    assert "Greet people by name, and count how often." in script.requests[0].said
    assert "Process exited with code 0" in script.requests[1].results[0]
    first = born["commit"]
    assert "state.json" not in life.git("ls-tree", "--name-only", first)

    # A lesson goes into the state of the version that serves.
    taught = json.dumps({"greeted": 0, "lessons": ["Ada likes tea"]})
    life.play(writes({"state.json": f"{taught}\n"}), decides("state", "Remembered that Ada likes tea."))
    assert life.told("Ada likes tea.")["decision"] == "state"
    assert StateStore(life.directory(first)).read()["lessons"] == ["Ada likes tea"]

    # A change of the code is a new version, which takes the state along.
    script = life.play(
        patches("words.py", ("GREETING = 'hello'", "GREETING = 'ahoy'")),
        decides("code", "Greets with ahoy.", "minor"),
    )
    grown = life.told("Say ahoy instead.")
    assert (grown["decision"], grown["version"], grown["promoted"]) == ("code", "0.1.0", True)
    assert "Say ahoy instead." in script.requests[0].said
    assert life.git("log", "--format=%H", "refs/heads/main") == [grown["commit"], first]
    assert life.greeted(grown["commit"]) == "ahoy, Ada"
    # One state, whichever version is asked for it.
    for commit in (grown["commit"], first):
        assert StateStore(life.directory(commit)).read() == {"greeted": 1, "lessons": ["Ada likes tea"]}

    with life.runtime.ledger.read() as tx:
        sessions = list_sessions(tx)
    assert [(each.engine, each.role, each.failure, each.simulated) for each in sessions] == [
        ("codex", "author", None, False)
    ] * 3
    assert all(each.usage.tokens and each.transcript for each in sessions)


@pytest.mark.soak
def test_what_codex_breaks_is_told_to_it_and_it_mends_it(life: Life) -> None:
    good, bad = files(greeting="hello"), files(greeting="hello", broken="failing_tests")
    summary = answer({"summary": "A greeter.", "refused": None})
    script = life.play(writes(bad), summary, writes(good), summary)
    born = life.ended(
        create_agent(life.runtime, AgentRequest(name="greeter", description="Greet."), actor="test")
    )
    assert born.result["version"] == "0.0.0"
    assert "Earlier tries did not pass." not in script.requests[0].said
    assert "Earlier tries did not pass." in script.requests[2].said
    assert "test_it_greets_by_name" in script.requests[2].said
