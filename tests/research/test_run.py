"""A research run from start to end, with the search engine: real commits, real sandboxes, both databases."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel import Misuse, NotFound, RunStatus, StepStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import find_research, get_standing, list_specialists
from ratchet.ledger.runs import get_run, list_steps
from ratchet.ledger.trial_pages import in_flight, kept_trials, latest_trials
from ratchet.ledger.trials import get_trial
from ratchet.ledger.usage import total
from ratchet.research.decision import check_certificate
from ratchet.research.jobs import KIND
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.views import leaderboard, status
from ratchet.runtime import Runtime, Worker, cancel_run, pause_run, resume_run
from ratchet.runtime.job import JobStatus, get_job
from tests.research.hill import EVALUATOR, RECIPE, TASK, write_hill
from tests.waiting import eventually


def start(runtime: Runtime, task: Path, **wanted: Any) -> int:
    return start_research(
        runtime, ResearchRequest(task=str(task), **{"engine": "search", "trials": 30, **wanted})
    )


def ended(ledger: Ledger, run_id: int, seconds: float = 60.0) -> RunStatus:
    eventually(lambda: status_of(ledger, run_id).final)
    return status_of(ledger, run_id)


def status_of(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_search_climbs_and_every_trial_is_a_commit(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path, tmp_path: Path
) -> None:
    run_id = start(runtime, hill, trials=40)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    repository = tmp_path / "research" / str(run_id) / "repo.git"
    with ledger.read() as tx:
        told = status(tx, run_id)
        kept = sorted(kept_trials(tx, run_id, limit=100), key=lambda trial: trial.ended_at or 0, reverse=True)
        leaders = leaderboard(tx, run_id).rows
        every = latest_trials(tx, run_id, limit=100)
        assert total(tx, "run", run_id).trials == 40
        assert {step.status for step in list_steps(tx, run_id)} == {StepStatus.COMPLETED}
    assert (told["trials"], sum(told["by_status"].values()), len(every)) == (40, 40, 41)
    assert told["best"]["score"] > told["baseline"]["score"] + 0.1
    assert len(kept) > 2
    assert [trial.score for trial in kept] == sorted((trial.score for trial in kept), reverse=True)
    assert [trial.score for trial in leaders] == [trial.score for trial in kept][: len(leaders)]
    assert git(repository, "rev-parse", "refs/heads/best") == kept[0].commit
    commits = {trial.exp_id: trial.commit for trial in every}
    for trial in every:
        assert git(repository, "rev-parse", f"refs/trials/{trial.exp_id}") == trial.commit
        if trial.parent is not None:
            assert git(repository, "rev-parse", f"{trial.commit}^") == commits[f"{trial.parent:03}"]
    assert git(repository, "fsck", "--strict") == ""


@pytest.mark.soak
def test_a_kept_trial_has_a_certificate_that_holds(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    import json

    run_id = start(runtime, hill, trials=10)
    ended(ledger, run_id)
    with ledger.read() as tx:
        best = kept_trials(tx, run_id, limit=1)[0]
    assert best.certificate is not None
    proof = json.loads(ledger.artifacts.read(best.certificate))
    assert check_certificate(proof) == []
    assert proof["commit"] == best.commit
    assert check_certificate({**proof, "score": proof["score"] + 1}) != []


@pytest.mark.soak
def test_what_the_machine_is_asked_twice_it_answers_once(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    first, second = start(runtime, hill, trials=12, parallel=1), start(runtime, hill, trials=12, parallel=1)
    ended(ledger, first)
    ended(ledger, second)
    with ledger.read() as tx:
        rows = [
            [(trial.status, trial.score) for trial in latest_trials(tx, run_id)] for run_id in (first, second)
        ]
    assert rows[0] == rows[1]


def test_a_pause_keeps_everything_and_a_resume_makes_exactly_the_rest(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    run_id = start(runtime, hill, trials=60)
    eventually(lambda: trials_of(ledger, run_id) >= 5)
    with ledger.write() as tx:
        pause_run(tx, runtime, run_id)
    eventually(lambda: not worker._execution.running)
    before = trials_of(ledger, run_id)
    with ledger.write() as tx:
        resume_run(tx, runtime, run_id)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    assert before < trials_of(ledger, run_id) == 60
    with ledger.read() as tx:
        assert in_flight(tx, run_id) == []
        assert [trial.number for trial in reversed(latest_trials(tx, run_id, limit=100))] == list(range(61))


@pytest.mark.soak
def test_a_cancelled_run_stands_still(runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path) -> None:
    run_id = start(runtime, hill, trials=10_000)
    eventually(lambda: trials_of(ledger, run_id) >= 3)
    with ledger.write() as tx:
        cancel_run(tx, runtime, run_id)
    eventually(lambda: not worker._execution.running)
    assert status_of(ledger, run_id) is RunStatus.CANCELLED
    assert trials_of(ledger, run_id) < 10_000


def trials_of(ledger: Ledger, run_id: int) -> int:
    with ledger.read() as tx:
        return get_standing(tx, run_id).trials


@pytest.mark.soak
def test_a_recipe_that_cannot_be_measured_fails_the_run_before_anything_is_spent(
    runtime: Runtime, worker: Worker, ledger: Ledger, tmp_path: Path
) -> None:
    broken = RECIPE.replace("return", "raise ValueError('no way up')\n    return")
    run_id = start(runtime, write_hill(tmp_path / "broken", recipe=broken))
    assert ended(ledger, run_id) is RunStatus.FAILED
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        assert "baseline of hill cannot be measured (crash)" in (run.reason or "")
        assert "no way up" in (run.reason or "")
        assert list_specialists(tx, run_id) == []


@pytest.mark.soak
def test_trials_that_crash_or_are_refused_are_rows_and_the_run_goes_on(
    runtime: Runtime, worker: Worker, ledger: Ledger, tmp_path: Path
) -> None:
    steep = RECIPE.replace("return", "1 / (X > 0.5)\n    return").replace("0.0..1.0", "0.0..2.0")
    run_id = start(runtime, write_hill(tmp_path / "steep", recipe=steep), trials=30)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        told = status(tx, run_id)["by_status"]
        every = latest_trials(tx, run_id, limit=100)
    assert told["crash"] > 0
    assert told["disqualified"] > 0
    [crash, *_] = [trial for trial in every if trial.status is TrialStatus.CRASH]
    assert crash.reason is not None
    assert "ZeroDivisionError" in crash.reason
    assert "recipe.py:6 in climb" in crash.reason


@pytest.mark.soak
def test_editing_the_task_while_it_runs_changes_nothing(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    run_id = start(runtime, hill, trials=20)
    (hill / "evaluator" / "evaluate.py").write_text(EVALUATOR.replace("1 - ", "100 - "))
    (hill / "task.toml").write_text("nonsense")
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        assert status(tx, run_id)["best"]["score"] <= 1


@pytest.mark.soak
def test_a_run_stops_when_nothing_was_kept_for_long_enough(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    run_id = start(runtime, hill, trials=None, hours_without_keep=2 / 3600)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        assert "nothing was kept for" in get_run(tx, run_id).result["stopped"]


@pytest.mark.soak
def test_a_run_stops_after_its_hours(runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path) -> None:
    run_id = start(runtime, hill, trials=None, hours=1 / 3600)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        assert "it ran for" in get_run(tx, run_id).result["stopped"]


@pytest.mark.soak
def test_the_strict_policy_keeps_whatever_is_better(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    run_id = start(runtime, hill, trials=15, keep_policy="strict", parallel=1)
    ended(ledger, run_id)
    with ledger.read() as tx:
        best = get_trial(tx, run_id, 0).score
        assert best is not None
        for trial in reversed(latest_trials(tx, run_id, limit=15)):
            assert trial.score is not None
            assert (trial.status is TrialStatus.KEEP) == (trial.score > best)
            assert trial.delta == trial.score - best
            best = max(best, trial.score)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"trials": None}, "nothing would ever stop"),
        ({"specialists": ("nobody",)}, "no specialist 'nobody'"),
        ({"name": "7"}, "cannot be called '7'"),
        ({"keep_policy": "lucky"}, "no keep policy 'lucky'"),
        ({"baseline_score": float("nan")}, "baseline score of nan"),
        ({"hours": float("inf")}, "hours must be above 0"),
    ],
)
def test_what_can_never_work_is_refused_at_once(
    runtime: Runtime, ledger: Ledger, hill: Path, wanted: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misuse, match=said):
        start(runtime, hill, **wanted)
    with ledger.read() as tx, pytest.raises(NotFound):
        find_research(tx, "hill")


@pytest.mark.soak
def test_an_engine_that_is_not_there_blocks_the_run_at_once(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    run_id = start(runtime, hill, engine="aider")
    eventually(lambda: status_of(ledger, run_id) is RunStatus.BLOCKED)
    with ledger.read() as tx:
        assert "aider" in (get_run(tx, run_id).reason or "")


@pytest.mark.soak
def test_a_noisy_task_is_repeated_and_its_noise_is_known(
    runtime: Runtime, worker: Worker, ledger: Ledger, tmp_path: Path
) -> None:
    noisy = EVALUATOR.replace(
        "def score(given):", "import random\n\n\ndef score(given):\n    luck = random.Random(given['seed'])"
    ).replace('"height": 1 -', '"height": luck.gauss(0, 0.01) + 1 -')
    task = write_hill(
        tmp_path / "noisy", evaluator=noisy, task=TASK.replace("deterministic = true", "baseline_repeats = 6")
    )
    run_id = start(runtime, task, trials=12)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    with ledger.read() as tx:
        told = status(tx, run_id)
        kept = kept_trials(tx, run_id, limit=1)[0]
    assert told["baseline"]["n"] == 6
    assert told["baseline"]["sd"] > 0
    assert kept.number > 0
    assert len(kept.measurements["samples"]) >= 3


@pytest.mark.soak
def test_a_job_whose_run_was_completed_before_its_process_died_ends_well(
    runtime: Runtime, worker: Worker, ledger: Ledger, hill: Path
) -> None:
    run_id = start(runtime, hill, trials=2)
    assert ended(ledger, run_id) is RunStatus.COMPLETED
    with ledger.write() as tx:
        again = runtime.enqueue(tx, KIND, run_id=run_id)

    def over() -> bool:
        with ledger.read() as tx:
            return get_job(tx, again).status.final

    eventually(over)
    with ledger.read() as tx:
        job, run = get_job(tx, again), get_run(tx, run_id)
    assert job.status is JobStatus.FINISHED
    assert run.status is RunStatus.COMPLETED
