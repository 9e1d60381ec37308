"""A good pair: what it answers, and what it can see and touch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.contract import Role
from ratchet.agents.servers import Called, Pair, ServerGaveNoAnswer, call_tool, list_tools, serving_pair
from ratchet.config.workflow_settings import Agents
from tests.agents.servers.versions import launch_of, processes_in, soon, write_version

_SECONDS = 20.0
_RUNNER = """
import os, socket, subprocess, sys
from tiny import serve

def tried(work):
    try:
        return repr(work())
    except OSError as error:
        return f"refused: {error.strerror}"

def look(secret, home):
    "What a hostile agent would try."
    return {
        "environment": dict(os.environ),
        "processors": len(os.sched_getaffinity(0)),
        "files": sorted(os.listdir(".")),
        "rewrite": tried(lambda: open("runner.py", "w")),
        "replace": tried(lambda: os.replace("tiny.py", "runner.py")),
        "rename": tried(lambda: os.rename("helpers", "gone")),
        "inside": tried(lambda: open("helpers/new.py", "w")),
        "repository": tried(lambda: open(".git/config", "a")),
        "compiled": tried(lambda: os.listdir("__pycache__")),
        "secret": tried(lambda: open(secret).read()),
        "home": tried(lambda: sorted(os.listdir(home))),
        "log": tried(lambda: open("logs/runner.log", "w").write("x")),
    }

def remember(text):
    with open("state.json.new", "w") as file:
        file.write(text)
    os.replace("state.json.new", "state.json")
    return True

def leave_daemon():
    "Starts what does not want to end."
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return True

print("the Runner is up")
serve(look, remember, leave_daemon)
"""
_TUNER = """
import sys
from tiny import serve

def arguments():
    return sys.argv

serve(arguments)
"""


@dataclass(frozen=True)
class Seen:
    """What was seen of a pair that has ended."""

    pair: Pair
    directory: Path
    looked: dict[str, Any]
    arguments: list[str]
    unknown: Called
    problems: list[str | None]
    left: int
    after: str
    ended: str


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    home = tmp_path_factory.mktemp("home")
    (home / "token").write_text("a secret of the home")
    directory = write_version(home / "agents" / "greeter" / ("c" * 40), _RUNNER, _TUNER)
    for inside in (".git", "helpers", "__pycache__"):
        (directory / inside).mkdir()
    (directory / ".git" / "config").write_text("")
    (directory / "__pycache__" / "tiny.cpython-311.pyc").write_bytes(b"planted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", "a secret of the parent")
        yield asyncio.run(_watch(directory, home))


async def _watch(directory: Path, home: Path) -> Seen:
    launch = launch_of(directory, architect_port=4321, RATCHET_AGENT_TOKEN="its own token")
    async with serving_pair(launch, Agents(cpus=1)) as pair:
        given = {"secret": str(home / "token"), "home": str(home)}
        looked = await call_tool(pair.runner.url, "look", given, _SECONDS)
        remembered = await call_tool(pair.runner.url, "remember", {"text": '{"a": 1}'}, _SECONDS)
        arguments = await call_tool(pair.tuner.url, "arguments", {}, _SECONDS)
        unknown = await call_tool(pair.tuner.url, "hello", {}, _SECONDS)
        await call_tool(pair.runner.url, "leave_daemon", {}, _SECONDS)
        problems = [await each.problem(_SECONDS) for each in (pair.runner, pair.tuner)]
        left = len(processes_in(directory))
    assert not remembered.failed
    with pytest.raises(ServerGaveNoAnswer) as failure:
        await list_tools(pair.runner.url, _SECONDS)
    return Seen(
        pair=pair,
        directory=directory,
        looked=looked.structured,
        arguments=arguments.structured["result"],
        unknown=unknown,
        problems=problems,
        left=left,
        after=str(failure.value),
        ended=await pair.runner.ended(),
    )


def test_both_servers_list_their_tools_and_have_no_problem(seen: Seen) -> None:
    assert [tool.name for tool in seen.pair.runner.tools] == ["look", "remember", "leave_daemon"]
    assert [tool.name for tool in seen.pair.tuner.tools] == ["arguments"]
    assert seen.pair.runner.tools[0].description == "What a hostile agent would try."
    assert seen.problems == [None, None]


def test_each_server_is_started_in_its_directory_with_its_arguments(seen: Seen) -> None:
    assert seen.arguments == ["tuner.py", str(seen.pair.tuner.port), "4321"]
    assert seen.pair.runner.role is Role.RUNNER
    assert seen.pair.runner.url == f"http://127.0.0.1:{seen.pair.runner.port}/mcp"
    assert {"runner.py", "tuner.py", "state.json", "logs"} <= set(seen.looked["files"])


def test_the_environment_holds_what_was_given_and_nothing_of_the_parent(seen: Seen) -> None:
    given = seen.looked["environment"]
    assert given.pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"
    # The way out, which leads nowhere unless the agent is allowed to.
    assert {given.pop(name) for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")} == {
        "http://127.0.0.1:3128"
    }
    assert {given.pop(name) for name in ("no_proxy", "NO_PROXY")} == {"127.0.0.1,localhost"}
    assert given == {
        "PATH": given["PATH"],
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RATCHET_AGENT": "greeter",
        "RATCHET_AGENT_COMMIT": "c" * 40,
        "RATCHET_AGENT_ROLE": "runner",
        "RATCHET_AGENTS_URL": "http://127.0.0.1:4321",
        "RATCHET_AGENT_TOKEN": "its own token",
    }


@pytest.mark.parametrize("way", ["rewrite", "replace", "rename", "inside", "repository"])
def test_its_code_and_its_repository_are_read_only(seen: Seen, way: str) -> None:
    assert seen.looked[way] in ("refused: Read-only file system", "refused: Device or resource busy")


def test_compiled_code_that_an_agent_planted_is_not_seen(seen: Seen) -> None:
    assert seen.looked["compiled"] == "[]"


def test_it_writes_its_state_and_its_logs(seen: Seen) -> None:
    assert (seen.directory / "state.json").read_text() == '{"a": 1}'
    assert (seen.directory / "logs" / "runner.log").read_text() == "x"


def test_of_the_home_it_sees_only_the_way_to_its_directory(seen: Seen) -> None:
    assert seen.looked["secret"] == "refused: No such file or directory"
    assert seen.looked["home"] == "['agents']"


def test_it_stays_on_as_many_processors_as_it_may_use(seen: Seen) -> None:
    assert seen.looked["processors"] == 1


def test_what_it_prints_lies_in_its_logs(seen: Seen) -> None:
    assert (seen.directory / "logs" / "runner.out").read_text() == "the Runner is up\n"
    assert seen.pair.runner.log == "the Runner is up\n"


def test_a_tool_that_is_not_there_is_a_failed_call(seen: Seen) -> None:
    assert seen.unknown.failed
    assert "tools/call" in seen.unknown.text


def test_leaving_ends_the_servers_and_all_that_they_started(seen: Seen) -> None:
    # Both servers, the first process of the sandbox of each, and the daemon.
    assert seen.left == 5
    assert soon(lambda: not processes_in(seen.directory))
    assert "does not answer" in seen.after
    assert seen.ended == "runner.py was ended by Ratchet"
