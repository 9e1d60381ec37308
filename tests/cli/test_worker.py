"""`ratchet worker` and `ratchet processes`: real processes, real signals."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.runtime import JobStatus, Runtime, get_job, list_processes
from tests.cli.conftest import Ratchet
from tests.cli.program import Program
from tests.waiting import eventually

Keep = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]


def enqueue_slow(runtime: Runtime, place: Path, seconds: float) -> int:
    with runtime.ledger.write() as tx:
        number = runtime.enqueue(tx, "test.slow", {"place": str(place), "seconds": seconds})
    assert number is not None
    return number


def status(runtime: Runtime, job_id: int) -> JobStatus:
    with runtime.ledger.read() as tx:
        return get_job(tx, job_id).status


def test_sigterm_lets_a_running_job_finish_and_ends_with_0(
    program: Program, runtime: Runtime, tmp_path: Path, ending: Keep
) -> None:
    worker = ending(program.start("worker"))
    job = enqueue_slow(runtime, tmp_path, 2)
    eventually((tmp_path / "began").exists)
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=120)
    assert worker.returncode == 0, err
    assert out == "", "logs go to stderr"
    assert "drains" in err
    assert (tmp_path / "ended").exists()
    assert status(runtime, job) is JobStatus.FINISHED


@pytest.mark.soak
def test_ctrl_c_of_an_idle_worker_ends_it_with_0(program: Program, runtime: Runtime, ending: Keep) -> None:
    worker = ending(program.start("worker", "--log-format", "json"))
    assert worker.stderr is not None
    assert "takes jobs" in worker.stderr.readline()
    worker.send_signal(signal.SIGINT)
    _, err = worker.communicate(timeout=120)
    assert worker.returncode == 0, err
    with runtime.ledger.read() as tx:
        assert list_processes(tx) == []


@pytest.mark.soak
def test_a_second_signal_ends_it_at_once_and_the_next_worker_takes_over(
    program: Program, runtime: Runtime, tmp_path: Path, ending: Keep
) -> None:
    worker = ending(program.start("worker"))
    job = enqueue_slow(runtime, tmp_path, 8)
    eventually((tmp_path / "began").exists)
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: _draining(runtime))
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=120)
    assert worker.returncode == 128 + signal.SIGTERM
    assert "told twice" in err
    assert not (tmp_path / "ended").exists()
    ending(program.start("worker"))
    eventually(lambda: status(runtime, job) is JobStatus.FINISHED)


@pytest.mark.soak
def test_slots_are_those_of_the_command_line(
    program: Program, ratchet: Ratchet, runtime: Runtime, ending: Keep
) -> None:
    worker = ending(program.start("worker", "--slots", "3"))
    assert worker.stderr is not None
    assert "takes jobs in 3 slots" in worker.stderr.readline()
    [process] = ratchet("processes", "--json").json
    assert (process["role"], process["slots"], process["state"]) == ("worker", 3, "alive")
    assert process["pid"] == worker.pid
    assert process.keys() == {
        *("id", "role", "host", "pid", "version", "state", "slots", "busy", "started_at", "beat_at"),
    }
    assert "0/3" in ratchet("processes").out


@pytest.mark.soak
def test_a_worker_makes_the_ledger_it_works_on(program: Program, ratchet: Ratchet, ending: Keep) -> None:
    worker = ending(program.start("worker"))
    assert worker.stderr is not None
    worker.stderr.readline()
    assert ratchet("processes", "--json").json[0]["pid"] == worker.pid


@pytest.mark.soak
def test_cancel_reaches_a_running_job(
    program: Program, ratchet: Ratchet, runtime: Runtime, tmp_path: Path, ending: Keep
) -> None:
    ending(program.start("worker"))
    job = enqueue_slow(runtime, tmp_path, 60)
    eventually((tmp_path / "began").exists)
    assert "is asked to stop on" in ratchet("queue", "cancel", str(job)).out
    eventually(lambda: status(runtime, job) is JobStatus.CANCELLED)


@pytest.mark.soak
def test_a_failed_job_shows_its_error(
    program: Program, ratchet: Ratchet, runtime: Runtime, ending: Keep
) -> None:
    ending(program.start("worker"))
    with runtime.ledger.write() as tx:
        job = runtime.enqueue(tx, "test.fails", max_attempts=1)
    assert job is not None
    eventually(lambda: status(runtime, job) is JobStatus.FAILED)
    assert "ValueError: out of luck" in ratchet("queue", "jobs", "--status", "failed").out
    assert "ratchet_test_kinds.py" in ratchet("queue", "show", str(job)).out


@pytest.mark.soak
def test_slots_must_be_a_number_above_0(program: Program) -> None:
    for text in ("0", "many"):
        done = program("worker", "--slots", text)
        assert done.code == 2
        assert "--slots" in done.err


def test_no_processes_say_how_to_start_one(ratchet: Ratchet, runtime: Runtime) -> None:
    assert "ratchet worker" in ratchet("processes").err
    assert ratchet("processes", "--json").json == []


def _draining(runtime: Runtime) -> bool:
    with runtime.ledger.read() as tx:
        return any(process.state == "draining" for process in list_processes(tx))
