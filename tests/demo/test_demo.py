"""The demo does what it says: a killed run is taken up, and no finished step is done twice."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratchet.config import Loaded, load_settings
from ratchet.demo import run_demo
from ratchet.demo.primes import count_primes
from ratchet.demo.show import summarise
from ratchet.kernel import RunStatus
from ratchet.ledger.runs import list_runs, list_steps
from ratchet.runtime import open_ledger


@pytest.fixture
def loaded(tmp_path: Path, database_url: str) -> Loaded:
    return load_settings({"home": str(tmp_path), "database_url": database_url}, env={})


def test_primes_are_counted() -> None:
    assert count_primes(0, 100) == 25
    assert count_primes(100, 200) == 21


@pytest.mark.slow
def test_the_demo_kills_its_worker_and_repeats_nothing(loaded: Loaded) -> None:
    out = io.StringIO()
    assert run_demo(loaded, out=out, blocks=9, size=4000) == 0
    said = out.getvalue()
    assert "is killed with kill -9" in said
    assert "0 done twice" in said
    assert f"'primes': {count_primes(0, 36_000)}" in said
    with open_ledger(loaded) as ledger:
        with ledger.read() as tx:
            [run] = list_runs(tx)
        summary = summarise(ledger, run.id)
    assert (summary.run.status, summary.completed_steps, summary.processes) == (RunStatus.COMPLETED, 9, 2)


@pytest.mark.slow
def test_a_demo_that_is_killed_itself_is_taken_up_by_the_next(loaded: Loaded) -> None:
    first = _demo_process(loaded)
    assert first.stdout is not None
    for line in first.stdout:
        if "block-02 completed" in line:
            break
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    before = _completed(loaded)
    assert 3 <= before < 24
    out = io.StringIO()
    assert run_demo(loaded, out=out) == 0
    assert "left unfinished" in out.getvalue()
    assert "24 steps completed" in out.getvalue()
    assert "0 done twice" in out.getvalue()


def _demo_process(loaded: Loaded) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "RATCHET_HOME": str(loaded.home),
        "RATCHET_DATABASE_URL": loaded.settings.database_url.reveal(),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "ratchet.cli", "demo"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _completed(loaded: Loaded) -> int:
    time.sleep(0.1)
    with open_ledger(loaded) as ledger, ledger.read() as tx:
        [run] = list_runs(tx)
        return sum(1 for step in list_steps(tx, run.id) if step.result is not None)


@pytest.mark.slow
def test_a_worker_that_ends_by_itself_ends_the_demo_with_an_error(loaded: Loaded) -> None:
    """Nobody is left to go on, so waiting for the run would last for ever."""
    demo = _demo_process(loaded)
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("Worker"):
            os.kill(int(line.split()[1]), signal.SIGKILL)
            break
    told, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "the worker ended by itself" in told
    assert "worker.log" in told
