"""A loop that is killed anywhere continues where it was, on either database."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ratchet.kernel import Outcome, RunStatus, StepStatus
from ratchet.ledger import Ledger
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.ledger.usage import list_sessions, total
from ratchet.runtime import Runtime, start_run
from tests.loop.flow import PLACES, REF
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import marks
from tests.waiting import eventually

# What was paid for and recorded before the death is not paid for again.
SESSIONS_AGAIN = {"after the session"}


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
def test_a_loop_killed_at_any_stage_goes_on_and_repeats_nothing_finished(
    place: str, runtime: Runtime, ledger: Ledger, fleet: Fleet, repository: Path, tmp_path: Path
) -> None:
    spec = {"file": str(tmp_path / "marks"), "place": place, "repository": str(repository), "height": 2}
    fleet.add()
    with ledger.write() as tx:
        run_id = start_run(tx, runtime, "climb", kind="research", name="climb", spec=spec)
    eventually(lambda: "died" in marks(tmp_path / "marks"))
    fleet.add()
    eventually(lambda: status(ledger, run_id).final)
    assert status(ledger, run_id) is RunStatus.COMPLETED
    assert git(repository, "log", "--format=%s", REF).split("\n") == ["Climb 1", "Climb 0", "Begin"]
    assert git(repository, "show", f"{REF}:number.txt") == "2"
    assert git(repository, "fsck", "--strict") == ""
    done = marks(tmp_path / "marks")
    assert done.count("proposed") == (3 if place in SESSIONS_AGAIN else 2)
    assert done.count("judged") == (3 if place == "after the verdict" else 2)
    with ledger.read() as tx:
        steps = list_steps(tx, run_id)
        assert [step.status for step in steps] == [StepStatus.COMPLETED] * 2
        for step in steps:
            *before, last = list_attempts(tx, step.id)
            assert last.outcome is Outcome.PASSED
            assert all(each.outcome is Outcome.ERROR for each in before)
        assert len(list_sessions(tx, run_id=run_id)) == 2
        assert total(tx, "run", run_id).input_tokens == 20


def status(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
