"""Deliveries that are known to be genuine: what they do to a protocol, on both databases."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy as sa

from ratchet.forges import CheckState, ForgeEvent, ForgeEventKind, ForgeJob, Trouble
from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger.projects import add_project, get_project
from ratchet.ledger.protocols import change_protocol_step, checks_of
from ratchet.ledger.tables import webhook_deliveries
from ratchet.protocols.ci import ci_summary, settle_commit
from ratchet.runtime import Runtime, cancel_run
from tests.protocols.ci.stream import FIRST, NAME, SECOND, Waiting, make_waiting

P, F, W, N = CheckState.PASSED, CheckState.FAILED, CheckState.PENDING, CheckState.NEUTRAL
DONE, FAILED, WAITS, PENDING = (
    StepStatus.COMPLETED,
    StepStatus.FAILED,
    StepStatus.NEEDS_QA,
    StepStatus.PENDING,
)
# For what does not depend on the kind of database.
DAY = 24 * 3600 * 1000


def test_a_step_passes_ci_and_its_protocol_goes_on(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    taken = waiting.check(P)
    assert waiting.statuses == [DONE, PENDING]
    assert waiting.steps[0].awaits_ci is False
    assert [each.id for each in waiting.jobs] == [taken.job_id]
    assert "check_run" in waiting.events


@pytest.mark.parametrize("automatic", [True, False])
def test_a_failed_check_fails_the_step_and_tells_the_next_attempt_why(
    runtime: Runtime, automatic: bool
) -> None:
    waiting = make_waiting(runtime, FIRST, automatic=automatic)
    waiting.check(F, trouble=Trouble("test", "Run tests", "assert 1 == 2"), url="https://ci.example.org/1")
    step = waiting.steps[0]
    assert (step.status, step.awaits_ci) == (FAILED, False)
    [told] = step.runtime_state["ci"]["failed"]
    assert (told["job"], told["step"], told["log_tail"]) == ("test", "Run tests", "assert 1 == 2")
    assert "assert 1 == 2" in step.runtime_state["feedback"]
    # One that carries itself on may still be fixed; one that does not needs somebody.
    assert waiting.protocol.status is (RunStatus.RUNNING if automatic else RunStatus.BLOCKED)
    assert bool(waiting.jobs) is automatic
    assert automatic or waiting.protocol.reason == "CI failed: test (Run tests)"


def test_a_protocol_that_has_used_up_its_fixes_is_blocked(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, automatic=True)
    waiting.change_step(0, runtime_state={"fixes": runtime.settings.protocols.fixes})
    waiting.check(F)
    assert waiting.protocol.status is RunStatus.BLOCKED


def test_a_step_waits_until_every_required_check_has_passed(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, required=["test", "lint"])
    waiting.check(P, name="test")
    waiting.check(P, name="not required")
    assert waiting.statuses[0] is WAITS
    waiting.check(W, name="lint")
    assert waiting.statuses[0] is WAITS
    waiting.check(P, name="lint")
    assert waiting.statuses[0] is DONE


def test_without_required_checks_all_that_are_reported_count(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.check(W, name="test")
    waiting.check(P, name="lint")
    assert waiting.statuses[0] is WAITS
    waiting.check(P, name="test")
    assert waiting.statuses[0] is DONE


def test_a_word_that_comes_late_does_not_undo_a_newer_one(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, required=["test", "lint"])
    waiting.check(P, at=2000)
    waiting.check(F, at=1000)
    waiting.check(W, at=2000)
    assert waiting.statuses[0] is WAITS
    waiting.check(P, name="lint")
    assert waiting.statuses[0] is DONE


def test_of_two_words_of_the_same_moment_the_worse_counts(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, required=["test", "lint"])
    waiting.check(P, at=1000)
    waiting.check(F, at=1000)
    assert waiting.statuses[0] is FAILED


def test_a_clock_that_is_ahead_does_not_have_the_last_word_for_ever(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, required=["test", "lint"])
    waiting.check(P, at=2**62)
    waiting.check(F)
    assert waiting.statuses[0] is FAILED


def test_what_an_earlier_word_told_about_a_failure_is_kept(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.check(F, trouble=Trouble("test", None, "the log"))
    waiting.check(F, trouble=Trouble("test", "Run tests"))
    with runtime.ledger.read() as tx:
        [check] = checks_of(tx, waiting.project_id, [FIRST])
    assert (check.detail["log_tail"], check.detail["step"]) == ("the log", "Run tests")


def test_ci_that_is_run_again_and_passes_takes_back_its_failure(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.check(F)
    assert waiting.protocol.status is RunStatus.BLOCKED
    waiting.check(P)
    assert waiting.statuses[0] is DONE
    assert waiting.protocol.status is RunStatus.RUNNING
    assert "ci" not in waiting.steps[0].runtime_state
    assert waiting.jobs


def test_a_protocol_that_is_blocked_for_another_reason_stays_so(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, automatic=True)
    waiting.check(F)
    waiting.move(RunStatus.BLOCKED)
    waiting.check(P)
    assert waiting.statuses[0] is DONE
    assert waiting.protocol.status is RunStatus.BLOCKED


def test_a_check_of_an_older_commit_changes_no_status(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, SECOND)
    for state in (F, P):
        assert waiting.check(state, FIRST).run_id == waiting.run_id
    assert waiting.statuses[0] is WAITS
    assert waiting.events.count("check_run") == 2


def test_what_was_pushed_last_speaks_for_every_step_that_waits(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, SECOND)
    waiting.check(P, SECOND)
    assert waiting.statuses[:2] == [DONE, DONE]


def test_each_commit_speaks_for_its_own_step(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, SECOND)
    waiting.check(P, FIRST)
    assert waiting.statuses[:2] == [DONE, WAITS]
    waiting.check(F, SECOND)
    assert waiting.statuses[:2] == [DONE, FAILED]


def test_ci_that_was_given_up_for_a_newer_push_has_not_failed(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, SECOND)
    waiting.check(F, FIRST, outcome="cancelled")
    assert waiting.statuses[:2] == [WAITS, WAITS]
    waiting.check(F, SECOND, outcome="cancelled")
    assert waiting.statuses[:2] == [WAITS, FAILED]


def test_jobs_of_a_pipeline_count_as_checks(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, required=["lint", "test"])
    jobs = tuple(ForgeJob(name, P, "success", None) for name in ("lint", "test"))
    waiting.check(P, name="pipeline", jobs=jobs)
    assert waiting.statuses[0] is DONE


@pytest.mark.parametrize("commit", [FIRST, None])
def test_a_delivery_without_a_commit_is_about_the_newest_step(runtime: Runtime, commit: str | None) -> None:
    waiting = make_waiting(runtime, commit)
    waiting.check(F, None)
    assert waiting.statuses[0] is FAILED
    assert waiting.protocol.status is RunStatus.BLOCKED
    waiting.check(P, None)
    assert waiting.statuses[0] is DONE
    assert waiting.steps[0].commit == commit


@pytest.mark.parametrize("branch", [NAME, f"refs/heads/{NAME}"])
def test_the_protocol_is_found_by_its_branch(runtime: Runtime, branch: str) -> None:
    waiting = make_waiting(runtime, FIRST)
    assert waiting.check(P, None, branches=(branch,)).run_id == waiting.run_id
    assert waiting.statuses[0] is DONE


def test_a_status_that_names_another_branch_first_is_found_by_its_commit(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.check(P, FIRST, branches=("main",))
    assert waiting.statuses[0] is DONE


@pytest.mark.parametrize("branch", ["main", f"refs/tags/{NAME}", f"feature/{NAME}", "'; --", ""])
def test_a_branch_of_no_protocol_changes_nothing(runtime: Runtime, branch: str) -> None:
    waiting = make_waiting(runtime, FIRST)
    assert waiting.check(F, None, branches=(branch,)).outcome == "no protocol"
    assert waiting.statuses[0] is WAITS


def test_a_branch_of_another_project_is_not_this_one(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    with runtime.ledger.write(actor="test") as tx:
        other = Waiting(runtime, add_project(tx, "other"), waiting.run_id)
    assert other.check(F).outcome == "no protocol"
    assert waiting.statuses[0] is WAITS


@pytest.mark.parametrize("ending", [RunStatus.CANCELLED, RunStatus.COMPLETED, RunStatus.FAILED])
def test_a_protocol_that_has_ended_is_not_touched(runtime: Runtime, ending: RunStatus) -> None:
    waiting = make_waiting(runtime, FIRST)
    if ending is RunStatus.CANCELLED:
        with runtime.ledger.write(actor="test") as tx:
            cancel_run(tx, runtime, waiting.run_id)
    else:
        waiting.move(ending)
    before = waiting.statuses
    waiting.check(P)
    waiting.check(F)
    waiting.pull_request(merged=True, closed=True)
    waiting.pull_request(closed=True)
    assert waiting.protocol.status is ending
    assert waiting.statuses == before
    assert waiting.jobs == []
    assert waiting.events.count("check_run") == 2


def test_a_step_in_the_hands_of_its_carrier_is_left_to_it(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.change_step(0, awaits_ci=False)
    with runtime.ledger.write(actor="test") as tx:
        runtime.enqueue(tx, "protocol", run_id=waiting.run_id)
    waiting.check(F)
    assert waiting.statuses[0] is WAITS
    # When it begins to wait, the forge has spoken already.
    with runtime.ledger.write(actor="test") as tx:
        change_protocol_step(tx, waiting.steps[0].step_id, awaits_ci=True)
        settle_commit(tx, runtime, get_project(tx, waiting.project_id), FIRST)
    assert waiting.statuses[0] is FAILED


def test_a_passed_ci_does_not_complete_a_step_that_nobody_has_reviewed(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.change_step(0, awaits_ci=False)
    waiting.check(P)
    assert waiting.statuses[0] is WAITS


def test_a_paused_protocol_stays_so_while_its_steps_are_settled(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.move(RunStatus.PAUSED)
    assert waiting.check(P).job_id is None
    assert waiting.statuses[0] is DONE
    assert waiting.protocol.status is RunStatus.PAUSED


@pytest.mark.parametrize("stands", [RunStatus.PAUSED, RunStatus.BLOCKED])
def test_a_merge_completes_a_protocol_that_stands_still(runtime: Runtime, stands: RunStatus) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.move(stands)
    waiting.pull_request(merged=True, closed=True)
    assert waiting.protocol.status is RunStatus.COMPLETED


@pytest.mark.parametrize("provider", ["github", "gitlab"])
def test_a_merged_pull_request_completes_its_protocol(runtime: Runtime, provider: str) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.pull_request(provider=provider, pull_request=4, merged=True, closed=True)
    assert waiting.protocol.status is RunStatus.COMPLETED
    assert waiting.statuses == [StepStatus.CANCELLED, StepStatus.CANCELLED]
    assert "merged" in (waiting.steps[0].reason or "")
    assert ("mr_merged" if provider == "gitlab" else "pr_merged") in waiting.events
    assert waiting.protocol.pull_request["state"] == "merged"


def test_a_merge_stops_who_works_on_the_protocol(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    with runtime.ledger.write(actor="test") as tx:
        runtime.enqueue(tx, "protocol", run_id=waiting.run_id)
    waiting.pull_request(merged=True, closed=True)
    assert [str(each.status) for each in waiting.jobs] == ["cancelled"]


def test_a_protocol_that_rests_on_a_recording_is_not_completed_by_a_merge(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    with runtime.ledger.write(actor="test") as tx:
        tx.connection.execute(sa.text("UPDATE runs SET used_recording = true"))
    waiting.pull_request(merged=True, closed=True)
    assert waiting.protocol.status is RunStatus.BLOCKED
    assert "recording" in (waiting.protocol.reason or "")


def test_a_pull_request_that_is_closed_blocks_its_protocol_until_somebody_acts(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.pull_request(pull_request=4, closed=True, outcome="closed")
    assert waiting.protocol.status is RunStatus.BLOCKED
    assert "closed without being merged" in (waiting.protocol.reason or "")
    waiting.pull_request(pull_request=4, outcome="reopened")
    assert waiting.protocol.status is RunStatus.BLOCKED
    assert waiting.protocol.pull_request["state"] == "open"
    assert waiting.statuses[0] is WAITS


def test_another_pull_request_of_the_branch_is_not_the_protocols(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    waiting.change(pull_request={"number": 4, "state": "open"})
    waiting.pull_request(pull_request=5, merged=True, closed=True)
    assert waiting.protocol.status is RunStatus.RUNNING
    assert waiting.protocol.pull_request == {"number": 4, "state": "open"}


def test_the_same_delivery_changes_nothing_the_second_time(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    event = waiting.said(P)
    assert waiting.take(event).outcome == "recorded"
    before = waiting.events
    assert waiting.take(event).outcome == "repeated"
    assert waiting.events == before
    # The same id of another forge is another delivery.
    other = ForgeEvent("gitlab", event.delivery, "push", ForgeEventKind.PUSH, branches=(NAME,))
    assert waiting.take(other).outcome == "recorded"


def test_old_deliveries_are_forgotten_a_few_at_a_time(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    with runtime.ledger.write(actor="test") as tx:
        old = [
            {
                "provider": "github",
                "delivery": f"old-{number}",
                "project_id": waiting.project_id,
                "event": "push",
                "outcome": "recorded",
                "at": tx.now - (31 if number < 30 else 29) * DAY,
            }
            for number in range(31)
        ]
        tx.connection.execute(sa.insert(webhook_deliveries), old)
    waiting.check(W)
    assert 0 < _deliveries(runtime) < 31
    waiting.check(W)
    assert _deliveries(runtime) == 3


@pytest.mark.parametrize("qa", ["skip", "full"])
def test_a_passed_ci_may_ask_for_one_more_review(runtime: Runtime, qa: str) -> None:
    waiting = make_waiting(runtime, FIRST, qa=qa)
    runtime.settings = runtime.settings.replace(
        protocols=runtime.settings.protocols.model_copy(update={"qa_on_ci": True})
    )
    waiting.check(P)
    assert "qa_enqueued" in waiting.events
    if qa == "skip":
        assert "qa_skipped_policy" in waiting.events
        assert waiting.statuses[0] is DONE
        return
    step = waiting.steps[0]
    assert (step.status, step.awaits_ci, step.runtime_state["qa_requested"]) == (WAITS, False, True)
    assert waiting.jobs
    # The review has passed and the step waits again: it is not reviewed for ever.
    waiting.change_step(0, awaits_ci=True)
    waiting.check(P, name="another")
    assert waiting.statuses[0] is DONE


def test_the_summary_tells_each_check_of_each_commit(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST, SECOND, required=["test"])
    waiting.check(F, FIRST, trouble=Trouble("test", "Run tests"))
    waiting.check(W, SECOND)
    with runtime.ledger.read() as tx:
        summary = ci_summary(tx, waiting.protocol)
    assert summary.required_checks == ["test"]
    first, second = summary.commits
    assert (first.commit, first.state, first.steps) == (FIRST, "failed", ["00-step"])
    assert (first.checks[0].check, first.checks[0].step) == ("test", "Run tests")
    assert (second.state, second.waiting) == ("pending", ["test"])


def test_one_delivery_that_comes_twice_at_once_is_taken_once(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    event = waiting.said(P)
    outcomes = _at_once(waiting, event, event, event)
    assert sorted(outcomes) == ["recorded", "repeated", "repeated"]
    assert waiting.events.count("step.completed") == 1


@pytest.mark.parametrize("state", [P, F])
def test_checks_that_come_at_once_settle_a_step_exactly_once(runtime: Runtime, state: CheckState) -> None:
    names = ["a", "b", "c", "d"]
    waiting = make_waiting(runtime, FIRST, required=names)
    outcomes = _at_once(waiting, *(waiting.said(state, name=name) for name in names))
    assert outcomes == ["recorded"] * 4
    assert waiting.statuses[0] is (DONE if state is P else FAILED)
    assert waiting.events.count(f"step.{waiting.statuses[0]}") == 1


def test_a_check_and_a_merge_at_once_leave_a_completed_protocol(runtime: Runtime) -> None:
    waiting = make_waiting(runtime, FIRST)
    merge = ForgeEvent(
        "github",
        "merge",
        "pull_request",
        ForgeEventKind.PULL_REQUEST,
        branches=(NAME,),
        merged=True,
        closed=True,
    )
    _at_once(waiting, waiting.said(P), merge)
    assert waiting.protocol.status is RunStatus.COMPLETED
    assert all(each.final for each in waiting.statuses)


def _at_once(waiting: Waiting, *events: ForgeEvent) -> list[str]:
    """Take deliveries in threads that start together; what became of them."""
    outcomes: list[str] = []
    together = threading.Barrier(len(events))

    def take(event: ForgeEvent) -> None:
        together.wait(30)
        outcomes.append(waiting.take(event).outcome)

    threads = [threading.Thread(target=take, args=(event,)) for event in events]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def _deliveries(runtime: Runtime) -> int:
    with runtime.ledger.read() as tx:
        return tx.connection.execute(sa.select(sa.func.count()).select_from(webhook_deliveries)).scalar_one()
