"""An agent that is written into a folder, and runs there without Ratchet."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client

from ratchet.agents.actions import export_agent
from ratchet.agents.contract import place_of
from ratchet.config import Loaded
from ratchet.kernel import Conflict
from ratchet.runtime import Runtime
from tests.agentkit.servers import free_port
from tests.agents.made_up import NAME, make_agent
from tests.agents.specimens import write_agent
from tests.waiting import eventually_async

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


class _Call:
    """As a face brings it, as far as an export asks."""

    def __init__(self, runtime: Runtime, loaded: Loaded) -> None:
        self.runtime, self.home, self.settings = runtime, loaded.home, loaded.settings
        self.ledger, self.read = runtime.ledger, runtime.ledger.read


@pytest.fixture
def exported(runtime: Runtime, loaded: Loaded, tmp_path: Path) -> Path:
    commit = make_agent(runtime.ledger, loaded.home).current or ""
    write_agent(place_of(loaded.home, NAME).version(commit))
    return export_agent(_Call(runtime, loaded), NAME, tmp_path / "new" / "greeter")


def test_the_folder_has_all_that_it_needs_and_says_how_it_is_started(
    exported: Path, runtime: Runtime, loaded: Loaded
) -> None:
    assert (exported / "ratchet" / "agentkit" / "server.py").is_file()
    assert not (exported / "ratchet" / "kernel").exists()
    assert "python runner.py 8000" in (exported / "README.md").read_text()
    assert "runner.py" in (exported / "Dockerfile").read_text()
    assert "mcp==" in (exported / "requirements.txt").read_text()
    assert isinstance(json.loads((exported / "state.json").read_text()), dict)
    with pytest.raises(Conflict, match="is there already"):
        export_agent(_Call(runtime, loaded), NAME, exported)


def test_its_server_answers_with_the_kit_that_lies_beside_it(exported: Path) -> None:
    """By the packages of these tests, of which `ratchet` is not used: the folder comes first."""
    _greeted(exported, sys.executable)


@pytest.mark.soak
def test_it_runs_in_a_new_environment_with_packages_of_the_index(exported: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=exported, check=True)
    python = str(exported / ".venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "-r", "requirements.txt"], cwd=exported, check=True)
    _greeted(exported, python)


def _greeted(directory: Path, python: str) -> None:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET")}
    process = subprocess.Popen([python, "runner.py", str(port)], cwd=directory, env=environment)

    async def greet() -> str:
        await eventually_async(lambda: process.poll() is not None or _listens(port))
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            answer = await client.call_tool("greet", {"name": "Ada"})
        return "".join(getattr(each, "text", "") for each in answer.content)

    try:
        assert "Ada" in asyncio.run(greet())
        assert (directory / "state.db").is_file()
    finally:
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0
