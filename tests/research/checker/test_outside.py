"""Every probe can fail: what a recipe must not do is done here, and noticed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.research.checker.bench import TrialEnd, open_bench
from ratchet.research.checker.outside import CANARY, Outside, ancestors, descendants, marked_processes
from ratchet.research.tasks import find_task
from tests.research.checker.folders import write_node

NOTHING = TrialEnd()


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    """The outside of a task, watched. It is looked at from here, so the bench may be closed."""
    task = find_task(str(write_node(tmp_path / "hill")))
    (tmp_path / "place").mkdir()

    async def make() -> Outside:
        async with open_bench(task, tmp_path / "place") as bench:
            return Outside(bench=bench, real_home=None)

    with asyncio.run(make()).watched() as watched:
        yield watched


def test_nothing_is_found_where_nothing_was_done(outside: Outside) -> None:
    assert outside.problems(NOTHING) == []


def test_a_file_in_a_foreign_place_is_found_and_removed(outside: Outside) -> None:
    for directory in (outside.bench.origin, outside.bench.home, outside.bench.task.root / "evaluator"):
        (directory / outside.nonce).write_text("x")
        assert f"it wrote to {directory}" in outside.problems(NOTHING)
        outside.remember()
        assert outside.problems(NOTHING) == []


def test_a_changed_file_is_found(outside: Outside) -> None:
    bench = outside.bench
    for path in (
        bench.home / "ledger.db",
        bench.origin / "recipe.py",
        bench.task.root / "evaluator" / "evaluate.py",
        bench.repository_directory / "config",
    ):
        with path.open("a") as file:
            file.write("\n")
        assert outside.problems(NOTHING) == [f"it changed {path}"]


def test_a_new_ref_is_found(outside: Outside) -> None:
    ref = outside.bench.repository_directory / "refs" / "heads" / "best"
    ref.write_text("0" * 40)
    assert f"it changed {ref}" in outside.problems(NOTHING)


def test_calls_are_heard(outside: Outside) -> None:
    facts = outside.facts()
    for family, kind, address, name in (
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["tcp_port"]), "TCP"),
        (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", facts["udp_port"]), "UDP"),
        (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{outside.nonce}", "an abstract socket"),
        (socket.AF_UNIX, socket.SOCK_STREAM, facts["socket_path"], "a socket"),
    ):
        with socket.socket(family, kind) as line:
            line.connect(address)
            line.send(b"x")
            assert outside.problems(NOTHING) == [f"it called over {name}"]


def test_a_process_that_lives_on_is_found_and_ended(outside: Outside) -> None:
    with waiting(outside.nonce) as process:
        assert outside.problems(NOTHING) == ["1 of its processes live on"]
        assert process.wait(30) == -9


def test_a_fork_is_known_by_its_name(outside: Outside) -> None:
    code = f"import ctypes; ctypes.CDLL(None).prctl(15, b'{outside.nonce}', 0, 0, 0); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", f"exec(bytes.fromhex('{code.encode().hex()}'))"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert marked_processes(outside.nonce) == [process.pid]
        process.kill()


def test_a_killed_bystander_is_found(outside: Outside) -> None:
    [_, victim] = outside.facts()["victims"]
    os.kill(victim, 9)
    os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
    assert outside.problems(NOTHING) == ["it killed a process that is not its own"]


def test_a_secret_of_the_environment_is_found_wherever_it_turns_up(outside: Outside) -> None:
    assert os.environ[CANARY] == outside.canary
    for ended in (
        TrialEnd(reason=f"KeyError: {outside.canary}"),
        TrialEnd(facts={"trials": [{"stdout": outside.canary, "stderr": ""}]}),
    ):
        assert outside.problems(ended) == ["a variable of Ratchet's environment is known to it"]


def test_the_environment_is_as_before_when_nobody_watches(outside: Outside) -> None:
    with Outside(bench=outside.bench, real_home=None).watched():
        assert CANARY in os.environ
    assert CANARY not in os.environ


def test_what_hostile_code_could_read_is_told(outside: Outside) -> None:
    said = f"before\n{outside.nonce} leak: read /secret\nafter"
    ended = TrialEnd(facts={"trials": [{"stdout": "", "stderr": said}]})
    assert outside.problems(ended) == ["read /secret"]


def test_an_evaluator_may_quote_a_trial_but_not_run_its_code(outside: Outside) -> None:
    trial = {"stdout": "", "stderr": f"{outside.nonce} ran 01"}
    quotes = TrialEnd(facts={"trials": [trial], "evaluator": {"stdout": "", "stderr": trial["stderr"]}})
    runs = {"stdout": "", "stderr": f"{outside.nonce} ran 02"}
    assert outside.problems(quotes) == []
    assert outside.problems(TrialEnd(facts={"trials": [trial], "evaluator": runs})) == [
        "the evaluator ran what the recipe brought along"
    ]


def test_relatives_are_found_in_both_directions() -> None:
    with waiting("relative") as process:
        assert process.pid in descendants(os.getpid())
        assert ancestors(process.pid, os.getpid()) == []
        assert os.getpid() in ancestors(process.pid, 1)


@contextlib.contextmanager
def waiting(marker: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with `marker` among its arguments."""
    command = [sys.executable, "-c", "print(1, flush=True); input()", marker]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()
