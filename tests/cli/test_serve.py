from __future__ import annotations

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.agents.addresses import announced
from ratchet.runtime import addresses
from tests.cli.conftest import Ratchet
from tests.cli.program import Program

Keep = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]


def test_serve_answers_tells_where_and_ends_with_0(program: Program, ratchet: Ratchet, ending: Keep) -> None:
    server = ending(program.start("serve", "--port", "0", "--json"))
    assert server.stdout is not None
    told = json.loads(server.stdout.readline())
    assert Path(told["token_file"]).exists()
    with urllib.request.urlopen(f"{told['url']}/health/live", timeout=60) as answer:
        assert answer.status == 200
    assert {each["role"] for each in ratchet("processes", "--json").json} == {"server", "worker"}
    server.send_signal(signal.SIGTERM)
    _, err = server.communicate(timeout=120)
    assert server.returncode == 0, err


@pytest.mark.soak
def test_serve_tells_a_person_where_and_how_to_end_it(program: Program, ending: Keep) -> None:
    server = ending(program.start("serve", "--port", "0", "--log-level", "warning"))
    assert server.stderr is not None
    serving = server.stderr.readline()
    assert serving.startswith("Serving on http://127.0.0.1:")
    assert server.stderr.readline().startswith("Agents: http://127.0.0.1:")
    assert "Token:" in server.stderr.readline()
    # Nobody watches this stderr but a log: the token is not in it.
    assert server.stderr.readline().endswith(
        "/console/, and `ratchet console` prints a link that lets you in\n"
    )
    server.send_signal(signal.SIGINT)
    out, _ = server.communicate(timeout=120)
    assert (server.returncode, out) == (0, "")


@pytest.mark.soak
def test_a_second_server_of_a_home_names_the_first(program: Program, ending: Keep) -> None:
    program.make_home()
    with addresses.announced(program.home, addresses.ServerAddress("127.0.0.1", 8484)):
        server = ending(program.start("serve", "--port", "0", "--log-level", "warning"))
        assert server.stderr is not None
        told = [server.stderr.readline() for _ in range(5)]
    assert told[-1].startswith("http://127.0.0.1:8484 serves this home as well")


@pytest.mark.soak
def test_serve_refuses_the_whole_world_without_a_token(plain_program: Program) -> None:
    done = plain_program("serve", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "token" in done.err
    assert "Traceback" not in done.err


@pytest.mark.soak
def test_a_port_that_cannot_be_is_misuse(plain_program: Program) -> None:
    assert plain_program("serve", "--port", "70000").code == 2


@pytest.mark.soak
def test_console_prints_a_link_that_lets_one_in(program: Program, ending: Keep, tmp_path: Path) -> None:
    server = ending(program.start("serve", "--port", "0", "--json"))
    assert server.stdout is not None
    told = json.loads(server.stdout.readline())
    port = told["url"].rpartition(":")[2]
    link = program("console", "--port", port).out.strip()
    assert link.startswith(f"{told['console']}enter?token=")
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(link, timeout=120) as answer:
        assert (answer.status, answer.url) == (200, told["console"])
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{link}x", timeout=120)
    assert refused.value.code == 401
    refused.value.close()
    other = program("console", "--port", port, "--home", str(tmp_path / "other"))
    assert (other.code, other.out) == (3, "")
    assert "does not take the token of this home" in other.err


@pytest.mark.soak
def test_two_homes_serve_side_by_side_and_each_finds_its_own(tmp_path: Path, ending: Keep) -> None:
    """With nothing asked for, a second server takes other ports: its own, and that of its agents."""
    homes = [Program(tmp_path / name) for name in ("first", "second")]
    told = []
    for program in homes:
        program.directory.mkdir()
        server = ending(program.start("serve", "--json"))
        assert server.stdout is not None
        told.append(json.loads(server.stdout.readline()))
    assert len({told[0]["url"], told[1]["url"], told[0]["agents"], told[1]["agents"]}) == 4
    for program, mine in zip(homes, told, strict=True):
        assert program("console", "--json").json["url"] == mine["console"]
        assert announced(program.home) == mine["agents"]


@pytest.mark.soak
def test_a_server_that_was_killed_is_not_found(program: Program, ending: Keep) -> None:
    server = ending(program.start("serve", "--port", "0", "--json"))
    assert server.stdout is not None
    told = json.loads(server.stdout.readline())
    assert program("console", "--json").json["url"] == told["console"]
    server.kill()
    server.wait()
    program.env["RATCHET_SERVER__PORT"] = "1"
    done = program("console")
    assert (done.code, "no server answers at http://127.0.0.1:1" in done.err) == (3, True)


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(plain_program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = plain_program("serve", "--port", port)
        assert (done.code, f"port {port} of 127.0.0.1 is taken" in done.err) == (1, True)
        assert "`ratchet serve --port 0`" in done.err


@pytest.mark.soak
def test_so_is_one_that_was_asked_for_agents(plain_program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        plain_program.env["RATCHET_AGENTS__PORT"] = port
        plain_program.env["RATCHET_SERVER__PORT"] = "0"
        done = plain_program("serve")
    assert (done.code, f"port {port} of 127.0.0.1 is taken" in done.err) == (1, True)
    assert "`RATCHET_AGENTS__PORT=0 ratchet serve`" in done.err


def test_console_says_that_no_server_answers(plain_program: Program) -> None:
    plain_program.env["RATCHET_SERVER__PORT"] = "1"
    done = plain_program("console")
    assert done.code == 3
    assert ("no server answers at http://127.0.0.1:1" in done.err, "ratchet serve" in done.err) == (
        True,
        True,
    )
