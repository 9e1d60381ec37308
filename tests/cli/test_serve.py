from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Ratchet
from tests.cli.program import Program

Keep = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]


def test_serve_answers_tells_where_and_ends_with_0(program: Program, ratchet: Ratchet, ending: Keep) -> None:
    server = ending(program.start("serve", "--port", "0", "--json"))
    assert server.stdout is not None
    told = json.loads(server.stdout.readline())
    assert Path(told["token_file"]).exists()
    with urllib.request.urlopen(f"{told['url']}/health/live", timeout=10) as answer:
        assert answer.status == 200
    assert [each["role"] for each in ratchet("processes", "--json").json] == ["server"]
    server.send_signal(signal.SIGTERM)
    _, err = server.communicate(timeout=30)
    assert server.returncode == 0, err


def test_serve_tells_a_person_where_and_how_to_end_it(program: Program, ending: Keep) -> None:
    server = ending(program.start("serve", "--port", "0", "--log-level", "warning"))
    assert server.stderr is not None
    assert server.stderr.readline().startswith("Serving on http://127.0.0.1:")
    assert "Token:" in server.stderr.readline()
    server.send_signal(signal.SIGINT)
    out, _ = server.communicate(timeout=30)
    assert (server.returncode, out) == (0, "")


def test_serve_refuses_the_whole_world_without_a_token(plain_program: Program) -> None:
    done = plain_program("serve", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "token" in done.err
    assert "Traceback" not in done.err


def test_a_port_that_cannot_be_is_misuse(plain_program: Program) -> None:
    assert plain_program("serve", "--port", "70000").code == 2
