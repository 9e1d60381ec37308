"""Data that changes under a run: its trials are void, nothing is kept, and the run waits until it is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel import Missing, RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import kept_trials, latest_trials
from ratchet.research.measurement.machine import Machine
from ratchet.research.start import ResearchRequest, check_research, start_research
from ratchet.research.tasks import read_task
from ratchet.runtime import Runtime, Worker, resume_run
from tests.research.hill import EVALUATOR, TASK, write_hill
from tests.waiting import eventually

BONUS = 1000
PAID = EVALUATOR.replace('"height": 1 -', '"height": float(open("/data/bonus/value").read()) + 1 -')


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "bonus"
    place.mkdir()
    (place / "value").write_text("0")
    return place


@pytest.fixture
def task(tmp_path: Path, data: Path) -> Path:
    said = f'\n[data.bonus]\npath = "{data}"\nreaders = ["evaluator"]\nabout = "ask for it"\n'
    return write_hill(tmp_path / "hill", task=TASK + said, evaluator=PAID)


def status_of(ledger: Ledger, run_id: int) -> Any:
    with ledger.read() as tx:
        return get_run(tx, run_id)


def tried(ledger: Ledger, run_id: int) -> int:
    with ledger.read() as tx:
        return len(latest_trials(tx, run_id, limit=1000))


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_nothing_is_kept_that_was_measured_with_other_data(
    runtime: Runtime, worker: Worker, ledger: Ledger, task: Path, data: Path
) -> None:
    run_id = start_research(runtime, ResearchRequest(task=str(task), engine="search", trials=5000))
    eventually(lambda: tried(ledger, run_id) > 3)
    (data / "value").write_text(str(BONUS))
    eventually(lambda: status_of(ledger, run_id).status is RunStatus.BLOCKED)
    with ledger.read() as tx:
        kept = kept_trials(tx, run_id, limit=1000)
    assert all(trial.score is not None and trial.score < BONUS / 2 for trial in kept)
    with ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    eventually(lambda: "that this run began with is gone" in (status_of(ledger, run_id).reason or ""))
    (data / "value").write_text("0")
    before = tried(ledger, run_id)
    eventually(lambda: status_of(ledger, run_id).status is RunStatus.BLOCKED)
    with ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    eventually(lambda: tried(ledger, run_id) > before + 3)


def test_a_run_holds_to_the_data_that_it_began_with(tmp_path: Path, task: Path, data: Path) -> None:
    record, home = tmp_path / "data.json", tmp_path / "home"
    Machine(read_task(task), home).hold_to(record)
    Machine(read_task(task), home).hold_to(record)
    (data / "value").write_text(str(BONUS))
    with pytest.raises(Missing, match="that this run began with is gone: bonus"):
        Machine(read_task(task), home).hold_to(record)
    (data / "value").write_text("0")
    Machine(read_task(task), home).hold_to(record)


def test_data_for_the_evaluator_alone_is_out_of_an_agents_sight(
    tmp_path: Path, task: Path, data: Path
) -> None:
    assert Machine(read_task(task), tmp_path / "home").secrets == (data.resolve(),)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_run_without_its_data_is_refused_before_it_is_recorded(
    runtime: Runtime, task: Path, data: Path
) -> None:
    (data / "value").unlink()
    data.rmdir()
    with pytest.raises(Missing, match="the data bonus is missing") as missing:
        check_research(runtime, ResearchRequest(task=str(task), engine="search", trials=5))
    assert missing.value.hint == "ask for it"
