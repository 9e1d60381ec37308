"""Servers that do not come to answer, and what a person is told."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from pathlib import Path

import pytest

from ratchet.agents.contract import Role
from ratchet.agents.servers import StartFailed, serving, serving_pair
from ratchet.config.workflow_settings import Agents
from tests.agents.servers.versions import HELLO, launch_of, processes_in, soon, write_version
from tests.agents.specimens import files

_PATIENT = Agents(start_seconds=60.0)
_SHORT = Agents(start_seconds=1.5)
# Long enough that it listens in time also where the machine is busy.
_LONGER = Agents(start_seconds=4.0)
_NO_TOOLS = "from tiny import serve\nserve()\n"
_NO_MCP = """
import sys
from http.server import HTTPServer, SimpleHTTPRequestHandler
HTTPServer(("127.0.0.1", int(sys.argv[1])), SimpleHTTPRequestHandler).serve_forever()
"""
_HANGS_WHEN_ASKED = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(1000)
"""
_WAITS_BEFORE_IT_LISTENS = """
import os, sys, time
from pathlib import Path
Path("logs/port.new").write_text(sys.argv[1])
os.replace("logs/port.new", "logs/port")
while not Path("logs/go").exists():
    time.sleep(0.01)
"""


def _failure(directory: Path, settings: Agents, role: Role = Role.RUNNER) -> StartFailed:
    async def start() -> None:
        async with serving(launch_of(directory), role, settings):
            raise AssertionError("it must not start")

    with pytest.raises(StartFailed) as failure:
        asyncio.run(start())
    assert soon(lambda: not processes_in(directory))
    return failure.value


@pytest.mark.soak
@pytest.mark.parametrize(
    ("source", "settings", "told"),
    [
        (files(broken="exits")["runner.py"], _PATIENT, "ended with exit code 1 before it answered"),
        (files(broken="syntax")["runner.py"], _PATIENT, "SyntaxError"),
        (files(broken="hangs")["runner.py"], _SHORT, "nothing listens on port"),
        (files(broken="wrong_port")["runner.py"], _SHORT, "nothing listens on port"),
        (_NO_MCP, _LONGER, "does not answer as an MCP server"),
        (_HANGS_WHEN_ASKED, _LONGER, "keeps its first caller waiting"),
        (_NO_TOOLS, _PATIENT, "lists no tools"),
    ],
    ids=["exits", "syntax error", "hangs", "wrong port", "no MCP", "hangs when asked", "no tools"],
)
def test_a_server_that_does_not_answer_is_told_by_its_reason(
    tmp_path: Path, source: str, settings: Agents, told: str
) -> None:
    failure = _failure(write_version(tmp_path / "version", source), settings)

    assert told in str(failure)
    assert "runner.py" in str(failure)
    assert "logs/runner.out" in (failure.hint or "")


def test_the_failure_of_a_start_carries_what_the_server_printed(tmp_path: Path) -> None:
    directory = write_version(tmp_path / "version", files(broken="exits")["runner.py"])

    assert _failure(directory, _PATIENT).log == "there is nobody to greet\n"


@pytest.mark.parametrize("name", ["runner.py", "__pycache__"])
def test_a_link_in_the_place_of_code_is_not_followed(tmp_path: Path, name: str) -> None:
    directory = write_version(tmp_path / "version")
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to(directory / "tuner.py")

    assert str(directory / name) in str(_failure(directory, _PATIENT))


def test_a_tuner_need_not_have_tools(tmp_path: Path) -> None:
    directory = write_version(tmp_path / "version", tuner=_NO_TOOLS)

    async def start() -> int:
        async with serving(launch_of(directory), Role.TUNER, _PATIENT) as server:
            return len(server.tools)

    assert asyncio.run(start()) == 0


def test_a_pair_of_which_one_fails_leaves_nothing_of_the_other(tmp_path: Path) -> None:
    directory = write_version(tmp_path / "version", tuner=files(broken="exits")["runner.py"])

    async def start() -> None:
        async with serving_pair(launch_of(directory), _PATIENT):
            raise AssertionError("it must not start")

    with pytest.raises(StartFailed, match=r"tuner\.py ended"):
        asyncio.run(start())
    assert soon(lambda: not processes_in(directory))


def test_a_port_that_a_foreign_program_takes_meanwhile_is_given_up_for_another(tmp_path: Path) -> None:
    directory = write_version(tmp_path / "version", _WAITS_BEFORE_IT_LISTENS + HELLO)
    (directory / "logs").mkdir()
    asked = directory / "logs" / "port"

    async def start() -> tuple[int, int]:
        async def take_port() -> socket.socket:
            await asyncio.to_thread(soon, asked.exists)
            foreign = socket.create_server(("127.0.0.1", int(asked.read_text())))
            (directory / "logs" / "go").touch()
            return foreign

        taking = asyncio.create_task(take_port())
        # Without the network, Ratchet itself listens there from the start.
        settings = Agents(start_seconds=60.0, network=True)
        async with serving(launch_of(directory), Role.RUNNER, settings) as server:
            with closing(await taking) as foreign:
                return foreign.getsockname()[1], server.port

    taken, given = asyncio.run(start())

    assert given != taken
    assert int(asked.read_text()) == given
