"""When a run stops, rests or is blocked, although there is more that could be tried."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import Loaded
from ratchet.engines import Capabilities, Engine, Readiness, Request, Session
from ratchet.kernel import RunStatus, StepStatus, TrialStatus, Usage
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing, get_standings
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.ledger.trial_pages import latest_trials, tallies
from ratchet.ledger.trials import get_trial
from ratchet.research.campaign import ResearchPlan, Stops, task_directory
from ratchet.research.jobs import KIND
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.supervisor import research_run
from ratchet.runtime import JobContext, Kinds, Runtime, Worker, list_jobs, open_runtime, resume_run
from tests.engines.fixed import FixedEngine
from tests.research.hill import TASK, write_hill
from tests.runtime.worker_process import load
from tests.waiting import eventually

QUICK = {
    "research.stagger_seconds": 0.0,
    "research.backoff_seconds": 0.05,
    "research.backoff_cap_seconds": 0.2,
}
Carried = Callable[..., tuple[Runtime, int]]


@pytest.fixture
def quick(url: str, tmp_path: Path) -> Loaded:
    return load(tmp_path, url, **QUICK, **{"research.infra_tries": 2, "research.infra_errors": 2})


@pytest.fixture
def carried(quick: Loaded, ledger: Ledger) -> Any:
    """Starts a run and a worker that carries it with an engine."""
    workers: list[Worker] = []

    def carry(engine: Engine, wanted: ResearchRequest, settings: Loaded = quick) -> tuple[Runtime, int]:
        async def handler(job: JobContext) -> Any:
            return await research_run(job, lambda _name, _surroundings: engine)

        kinds = Kinds()
        kinds.add(KIND, handler)
        worker = Worker(open_runtime(settings, ledger, kinds))
        workers.append(worker)
        worker.start()
        return worker.runtime, start_research(worker.runtime, wanted)

    yield carry
    for worker in workers:
        worker.stop(drain_seconds=0)


def status_of(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status


class Walker:
    """An engine that goes another step with each session."""

    name = "walker"
    capabilities = Capabilities(edits_files=True, reports_usage=True)

    def __init__(self, usage: Usage | None = None) -> None:
        self._usage = usage or Usage()
        self._steps = 0

    async def propose(self, request: Request) -> Session:
        self._steps += 1
        assert request.workspace is not None
        recipe = request.workspace / "recipe.py"
        recipe.write_text(f"def climb(given):\n    return {{'x': {0.9 - self._steps / 200}, 'y': 0.6}}\n")
        return Session(self.name, text=f"HYPOTHESIS: step {self._steps} to the left", usage=self._usage)

    async def check(self) -> Readiness:
        return Readiness(True, "always")


@pytest.mark.soak
def test_sessions_that_hand_in_nothing_are_failures_and_rest_longer_each_time(
    carried: Carried, ledger: Ledger, hill: Path, url: str, tmp_path: Path
) -> None:
    idle = FixedEngine({"recipe.py": (hill / "recipe.py").read_text()})
    patient = load(tmp_path, url, **QUICK, **{"research.session_failures": 1000})
    _, run_id = carried(idle, ResearchRequest(task=str(hill), trials=5, hours=2 / 3600), patient)
    eventually(lambda: status_of(ledger, run_id).final)
    with ledger.read() as tx:
        _, specialist = get_standings(tx, run_id, "generalist")
        standing = get_standing(tx, run_id)
        [step] = list_steps(tx, run_id)
        starts = [attempt.started_at for attempt in list_attempts(tx, step.id)]
        assert "it ran for" in get_run(tx, run_id).result["stopped"]
    assert standing.trials == 0
    assert specialist.failures == specialist.sessions > 2
    assert "nothing was changed" in (specialist.problem or "")
    rests = [after - before for before, after in itertools.pairwise(starts)]
    assert all(rest >= least for rest, least in zip(rests, (50, 100, 200, 200), strict=False))


def test_sessions_that_only_fail_block_the_run_and_it_can_be_resumed(
    carried: Carried, ledger: Ledger, hill: Path, url: str, tmp_path: Path
) -> None:
    idle = FixedEngine({"recipe.py": (hill / "recipe.py").read_text()})
    thrice = load(tmp_path, url, **QUICK, **{"research.session_failures": 3})
    runtime, run_id = carried(idle, ResearchRequest(task=str(hill), trials=5), thrice)
    eventually(lambda: status_of(ledger, run_id) is RunStatus.BLOCKED)
    with ledger.read() as tx:
        reason = get_run(tx, run_id).reason or ""
        assert get_standings(tx, run_id, "generalist")[1].sessions == 3
    assert "3 sessions of each specialist in a row failed" in reason
    assert "nothing was changed" in reason
    with ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    eventually(lambda: _sessions(ledger, run_id) == 6)


def _sessions(ledger: Ledger, run_id: int) -> int:
    with ledger.read() as tx:
        return get_standings(tx, run_id, "generalist")[1].sessions


@pytest.mark.soak
@pytest.mark.parametrize(
    ("usage", "limit", "told"),
    [
        (Usage(input_tokens=400, output_tokens=100), {"tokens": 1200}, "tokens budget"),
        (Usage(cost_microusd=500_000), {"cost_usd": 1.2}, "the budget of $1.20 is used up ($1.50)"),
    ],
    ids=["tokens", "money"],
)
def test_tokens_and_money_are_hard_stops(
    carried: Carried, ledger: Ledger, hill: Path, usage: Usage, limit: dict[str, Any], told: str
) -> None:
    _, run_id = carried(Walker(usage), ResearchRequest(task=str(hill), **limit))
    eventually(lambda: status_of(ledger, run_id).final)
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        assert run.status is RunStatus.COMPLETED, run.reason
        assert told in run.result["stopped"]
        # After the third nothing is left.
        assert get_standing(tx, run_id).trials == 3


@pytest.mark.soak
def test_the_machine_is_to_blame_for_what_it_spoils_and_the_run_is_blocked_until_it_is_mended(
    carried: Carried, quick: Loaded, ledger: Ledger, tmp_path: Path
) -> None:
    task = write_hill(tmp_path / "spoiled", task=TASK + '[[specialist]]\nname = "one"\n')
    runtime, run_id = carried(Walker(), ResearchRequest(task=str(task), trials=30))
    with ledger.read() as tx:
        plan = ResearchPlan.of(get_run(tx, run_id).spec)
    evaluator = task_directory(quick.home, plan.task_hash) / "task" / "evaluator" / "evaluate.py"
    eventually(lambda: standing(ledger, run_id).trials >= 2)
    honest = evaluator.read_text()
    evaluator.chmod(0o644)
    evaluator.write_text("def score(given):\n    return {'height': 99}\n")
    eventually(lambda: status_of(ledger, run_id) is RunStatus.BLOCKED)
    with ledger.read() as tx:
        assert "could not be measured" in (get_run(tx, run_id).reason or "")
        assert {step.status for step in list_steps(tx, run_id)} == {StepStatus.BLOCKED}
        assert tallies(tx, run_id)["one"][TrialStatus.INFRA_ERROR] == 2
    evaluator.write_text(honest)
    with ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    eventually(lambda: status_of(ledger, run_id).final)
    with ledger.read() as tx:
        rows = latest_trials(tx, run_id)
    assert status_of(ledger, run_id) is RunStatus.COMPLETED
    assert sum(row.status is not TrialStatus.INFRA_ERROR for row in rows) == 31
    assert all(row.score is None or row.score <= 1 for row in rows)


@pytest.mark.soak
def test_the_urgent_specialist_goes_first(carried: Carried, ledger: Ledger, tmp_path: Path) -> None:
    roster = '[[specialist]]\nname = "calm"\n[[specialist]]\nname = "urgent"\npriority = 5\n'
    task = write_hill(tmp_path / "two", task=TASK + roster)
    _, run_id = carried(Walker(), ResearchRequest(task=str(task), trials=2, parallel=1))
    eventually(lambda: status_of(ledger, run_id).final)
    with ledger.read() as tx:
        assert [trial.specialist for trial in latest_trials(tx, run_id)] == ["urgent", "urgent", "baseline"]


@pytest.mark.soak
def test_a_run_that_is_over_does_not_wait_for_seats_that_nobody_took(
    carried: Carried, ledger: Ledger, hill: Path, url: str, tmp_path: Path
) -> None:
    slow = load(tmp_path, url, **{**QUICK, "research.stagger_seconds": 3600.0})
    _, run_id = carried(Walker(), ResearchRequest(task=str(hill), trials=2, parallel=3), slow)
    eventually(lambda: status_of(ledger, run_id).final)
    assert standing(ledger, run_id).trials == 2


@pytest.mark.soak
@pytest.mark.parametrize("calibration", [False, True])
def test_a_baseline_that_is_told_is_measured_only_if_it_must_be(
    carried: Carried, ledger: Ledger, tmp_path: Path, calibration: bool
) -> None:
    told = f"[baseline]\nscore = 0.25\nrequires_calibration = {str(calibration).lower()}\n"
    _, run_id = carried(
        Walker(), ResearchRequest(task=str(write_hill(tmp_path / "told", task=TASK + told)), trials=1)
    )
    eventually(lambda: status_of(ledger, run_id).final)
    with ledger.read() as tx:
        first = get_trial(tx, run_id, 0)
    assert (first.score == 0.25) is not calibration
    assert (first.reason == "given, not measured") is not calibration


@pytest.mark.soak
def test_a_baseline_that_the_machine_spoils_is_tried_again(
    carried: Carried, ledger: Ledger, tmp_path: Path
) -> None:
    command = TASK.replace('function = "climb"\nfile = "recipe.py"', 'command = ["no-such-program"]')
    _, run_id = carried(
        Walker(), ResearchRequest(task=str(write_hill(tmp_path / "missing", task=command)), trials=1)
    )
    eventually(lambda: status_of(ledger, run_id).final)
    with ledger.read() as tx:
        assert "(infra_error)" in (get_run(tx, run_id).reason or "")
        [job] = list_jobs(tx, run_id=run_id)
    assert job.attempt == 3


@pytest.mark.soak
def test_a_trial_of_a_recording_is_marked(carried: Carried, ledger: Ledger, hill: Path) -> None:
    engine = Walker()
    engine.name = "replay"
    _, run_id = carried(engine, ResearchRequest(task=str(hill), trials=1, simulated=True))
    eventually(lambda: status_of(ledger, run_id).final)
    with ledger.read() as tx:
        assert get_trial(tx, run_id, 1).simulated


def standing(ledger: Ledger, run_id: int) -> Any:
    with ledger.read() as tx:
        return get_standing(tx, run_id)


def test_the_only_trial_of_a_run_is_one() -> None:
    assert [Stops(trials=count).made_all for count in (1, 2)] == [
        "its only trial was made",
        "all 2 trials were made",
    ]
