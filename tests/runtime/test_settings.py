"""The runtime's settings do what they say. Those of queues, slots, heartbeats and draining are shown in other files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ratchet.config import Loaded, load_settings
from ratchet.kernel import BudgetExceeded, BudgetPolicy, ConfigError, Limits, Usage
from ratchet.ledger import Ledger, Spender
from ratchet.ledger.runs import create_run
from ratchet.ledger.usage import charge, check
from ratchet.observe import logs
from ratchet.runtime import (
    JobContext,
    Kinds,
    Runtime,
    Worker,
    configured_budgets,
    enter_run,
    open_ledger,
    open_runtime,
    run_step,
    start_run,
)
from ratchet.runtime.job import RetryPolicy
from tests.runtime.conftest import ended
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import make_kinds, marks
from tests.runtime.worker_process import load
from tests.waiting import eventually


def test_pauses_double_up_to_the_cap() -> None:
    policy = RetryPolicy()
    assert policy.max_attempts == 3
    assert [policy.pause_seconds(attempt) for attempt in (1, 2, 3, 6, 7, 1000)] == [1, 2, 4, 32, 60, 60]


def test_the_pauses_and_tries_are_those_of_the_settings(ledger: Ledger, url: str, tmp_path: Path) -> None:
    flags = {"runtime.max_attempts": 2, "runtime.retry_base_seconds": 5, "runtime.retry_cap_seconds": 7}
    runtime = open_runtime(load(tmp_path, url, **flags), ledger, make_kinds())
    assert runtime.jobs._policy == RetryPolicy(2, 5, 7, 20)


def test_a_job_without_a_timeout_of_its_own_has_the_configured_one(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    fleet.add(runtime__job_timeout_seconds=0.3)
    with ledger.write() as tx:
        payload = {"file": str(tmp_path / "marks"), "seconds": 60}
        job_id = runtime.enqueue(tx, "spell", payload, max_attempts=1)
    assert "longer than 0.3 s" in (ended(ledger, job_id).error or "")


@pytest.mark.soak
def test_urgent_jobs_of_a_limited_queue_start_first(
    fleet: Fleet, ledger: Ledger, url: str, tmp_path: Path
) -> None:
    (tmp_path / "ratchet.toml").write_text("[queues.narrow]\nconcurrency = 1\n")
    runtime = open_runtime(load(tmp_path, url), ledger, make_kinds())
    file = tmp_path / "marks"
    with ledger.write() as tx:
        ids = [
            runtime.enqueue(tx, "note", {"file": str(file)}, queue="narrow", priority=priority)
            for priority in (9, 5, 5, 0)
        ]
    fleet.add()
    eventually(lambda: len(marks(file)) == 4)
    assert [int(line.split(":")[0]) for line in marks(file)] == [ids[3], ids[1], ids[2], ids[0]]


def test_a_worker_looks_by_itself_after_poll_seconds_or_when_a_job_is_due(
    ledger: Ledger, url: str, tmp_path: Path
) -> None:
    runtime = open_runtime(load(tmp_path, url, **{"runtime.poll_seconds": 40}), ledger, make_kinds())
    worker = Worker(runtime)
    worker.start()
    try:
        assert worker._claim() == 40
        with ledger.write() as tx:
            runtime.enqueue(tx, "note", {"file": "unused"}, delay_seconds=30)
        assert 0 < worker._claim() <= 30
    finally:
        worker.stop(drain_seconds=0)


@pytest.mark.parametrize("scope", ["attempt", "run", "project"])
def test_budgets_of_the_settings_are_in_force(ledger: Ledger, tmp_path: Path, scope: str) -> None:
    loaded = load_settings({"home": str(tmp_path), f"budgets.{scope}.tokens": 100}, env={})
    budgets = configured_budgets(loaded.settings)
    assert budgets.limits[scope] == Limits(tokens=100)  # type: ignore[index]
    if scope != "run":
        return
    with ledger.write() as tx:
        spender = Spender(run_id=create_run(tx, "workflow", "spends"))
        charge(tx, spender, Usage(input_tokens=100), budgets, engine="test")
        with pytest.raises(BudgetExceeded, match="100 of 100"):
            check(tx, spender, budgets)
    lenient = load_settings(
        {"home": str(tmp_path), "budgets.policy": "warn", "budgets.run.tokens": 1}, env={}
    )
    assert configured_budgets(lenient.settings).policy is BudgetPolicy.WARN


@pytest.mark.soak
def test_lines_written_in_a_step_carry_its_ids(loaded: Loaded, ledger: Ledger) -> None:
    kinds = Kinds()
    lines = io.StringIO()

    async def talk(job: JobContext) -> None:
        with job.write() as tx:
            enter_run(tx, job.run_id)

        async def say(_: object) -> None:
            logs.logger("test").warning("said in a step")

        await run_step(job, "only", say)

    kinds.add("talk", talk)
    runtime = open_runtime(loaded, ledger, kinds)
    worker = Worker(runtime)
    logs.configure("warning", "json", lines)
    worker.start()
    try:
        with ledger.write(request_id="request-7") as tx:
            run_id = start_run(tx, runtime, "talk", kind="workflow", name="talk")
        eventually(lambda: "said in a step" in lines.getvalue())
    finally:
        worker.stop(drain_seconds=5)
        logs.configure("warning")
    [line] = [json.loads(each) for each in lines.getvalue().splitlines() if "said in a step" in each]
    assert (line["run_id"], line["step_id"], line["attempt_id"]) == (run_id, 1, 1)
    assert (line["job_id"], line["request_id"]) == (1, "request-7")


def test_an_artifact_store_needs_a_ledger_that_machines_share(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"sqlite:///{tmp_path}/ledger.db", **{"artifacts.url": "s3://bucket"})
    with pytest.raises(ConfigError, match="the ledger is a SQLite file of this machine"):
        open_ledger(loaded)
