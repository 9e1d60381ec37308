"""Loops on both databases: what is done again, how often, and what stays."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet.kernel import Conflict, Outcome, RunStatus, StepStatus
from ratchet.ledger import Ledger, change_run
from ratchet.ledger.runs import close_attempt, get_run, get_step, list_attempts, open_attempt
from ratchet.protocols.loops import LoopDecision, apply_loop, may_loop
from tests.protocols.policies.scene import loop, make_scene


def test_a_failed_step_goes_back_and_everything_from_there_is_done_again(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed", "pending"], {1: [loop(max_iterations=2, step_back=1)]})

    decision = scene.loop(1)

    assert decision is not None
    assert (decision.target_step_index, decision.iterations) == (0, 1)
    assert scene.statuses() == ["pending"] * 3
    assert scene.state(1) == {
        "loop_counts": {"again": 1},
        "last_action": "loop_step_back",
        "last_policy_module_id": "again",
        "last_target_step_index": 0,
    }
    assert [step.summary for step in scene.steps()] == ["Looped via again (1/2)"] * 3
    [event] = scene.events("loop_")
    assert event.type == "loop_decision"
    assert event.data == {
        "module_id": "again",
        "target_step_index": 0,
        "steps_reset": [0, 1, 2],
        "iterations": 1,
        "max_iterations": 2,
        "reason": "qa_failed",
    }
    with ledger.read() as tx:
        assert get_run(tx, scene.run_id).status is RunStatus.RUNNING


def test_a_loop_at_its_limit_changes_nothing_and_says_so(ledger: Ledger) -> None:
    scene = make_scene(
        ledger,
        ["completed", "failed"],
        {1: loop(max_iterations=2)},
        {1: {"loop_counts": {"again": 2}}},
    )

    assert scene.loop(1) is None

    assert scene.statuses() == ["completed", "failed"]
    assert scene.state(1) == {"loop_counts": {"again": 2}}
    [event] = scene.events("loop_")
    assert event.type == "loop_limit_reached"
    assert (event.data["iterations"], event.data["max_iterations"]) == (2, 2)


def test_a_loop_for_another_reason_waits_for_its_own(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {1: loop(condition="QA_Failed")})

    assert scene.loop(1, "exec_failed") is None
    assert scene.statuses() == ["completed", "failed"]
    assert scene.loop(1, "qa_failed") is not None

    assert scene.statuses() == ["pending", "pending"]
    assert scene.told("loop_") == ["loop_condition_skipped", "loop_decision"]


def test_skipped_and_cancelled_steps_are_passed_over(ledger: Ledger) -> None:
    scene = make_scene(
        ledger,
        ["completed", "completed", "cancelled", "failed", "pending"],
        {3: loop(step_back=2, skip_steps=[1])},
    )

    decision = scene.loop(3)

    assert decision is not None
    assert decision.target_step_index == 0
    assert decision.steps_reset == (0, 3, 4)
    assert scene.statuses() == ["pending", "completed", "cancelled", "pending", "pending"]
    assert decision.summary == "Looped via again (1/∞)"


def test_a_loop_may_skip_steps_by_the_names_of_their_agents(ledger: Ledger) -> None:
    scene = make_scene(
        ledger, ["completed", "completed", "failed"], {2: loop(step_back=2, skip_steps=["b", "00-a"])}
    )

    decision = scene.loop(2)

    assert decision is not None
    assert decision.steps_reset == (2,)


def test_a_later_policy_is_tried_when_an_earlier_one_may_not(ledger: Ledger) -> None:
    policies = [
        loop("first", max_iterations=1),
        loop("second", conditions=["exec_failed"]),
        loop("third", max_iterations=5),
    ]
    scene = make_scene(
        ledger, ["completed", "failed"], {1: policies}, {1: {"loop_counts": {"first": 1, "third": 2}}}
    )

    decision = scene.loop(1)

    assert decision is not None
    assert (decision.module_id, decision.iterations) == ("third", 3)
    assert scene.state(1)["loop_counts"] == {"first": 1, "third": 3}
    assert scene.told("loop_") == ["loop_limit_reached", "loop_condition_skipped", "loop_decision"]


def test_one_failure_loops_once_however_often_it_is_told(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {1: loop()})
    failed = scene.step(1)

    first = scene.loop(1)
    with ledger.write() as tx:
        second = apply_loop(tx, failed, "qa_failed")

    assert first is not None
    assert second is None
    assert scene.state(1)["loop_counts"] == {"again": 1}
    assert scene.told("loop_") == ["loop_decision"]


def test_one_failure_loops_once_when_two_tell_it_at_the_same_time(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {1: loop()})
    failed, start = scene.step(1), threading.Barrier(2)

    def tell() -> LoopDecision | None:
        start.wait()
        with ledger.write() as tx:
            return apply_loop(tx, failed, "qa_failed")

    with ThreadPoolExecutor(2) as both:
        decisions = [each.result() for each in [both.submit(tell), both.submit(tell)]]

    assert decisions.count(None) == 1
    assert scene.state(1)["loop_counts"] == {"again": 1}


def test_a_loop_ends_by_itself_at_its_limit(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {1: loop(max_iterations=3)})

    rounds = 0
    while scene.loop(1) is not None:
        rounds += 1
        scene.move(1, StepStatus.RUNNING, StepStatus.FAILED)

    assert rounds == 3
    assert scene.told("loop_") == ["loop_decision"] * 3 + ["loop_limit_reached"]


def test_a_loop_waits_while_somebody_works_on_another_step(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed", "running"], {1: loop()})

    assert not may_loop(scene.steps(), scene.step(1))
    with pytest.raises(Conflict, match="02-c"):
        scene.loop(1)
    assert scene.statuses() == ["completed", "failed", "running"]

    scene.move(2, StepStatus.COMPLETED)
    assert may_loop(scene.steps(), scene.step(1))
    assert scene.loop(1) is not None
    assert scene.statuses() == ["pending"] * 3


def test_a_step_that_waits_for_ci_is_done_again_and_waits_no_longer(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed", "needs_qa"], {1: loop()})
    scene.change(2, awaits_ci=True, commit="c" * 40)

    assert scene.loop(1) is not None

    step = scene.step(2)
    assert (step.status, step.awaits_ci) == (StepStatus.PENDING, False)


def test_a_loop_forgets_what_a_try_left_for_the_next_one_but_not_what_was_wrong(ledger: Ledger) -> None:
    left = {"triggered": True, "goes_on": {"commit": "c" * 40}, "fixes": 2}
    stays = {"feedback": "a test fails", "ci": {"job": "lint"}, "loop_counts": {"other": 4}, "settled": 2}
    scene = make_scene(ledger, ["completed", "failed", "pending"], {1: loop()}, {2: {**left, **stays}})

    scene.loop(1)

    assert scene.state(2) == stays


def test_what_is_done_again_keeps_its_attempts_and_gets_new_ones(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {1: loop()})
    with ledger.write() as tx:
        first = open_attempt(tx, get_step(tx, scene.step(0).step_id))
        close_attempt(tx, first, Outcome.PASSED, "fine")

    scene.loop(1)

    with ledger.write() as tx:
        open_attempt(tx, get_step(tx, scene.step(0).step_id))
        attempts = list_attempts(tx, scene.step(0).step_id)
    assert [attempt.number for attempt in attempts] == [1, 2]
    assert attempts[0].outcome is Outcome.PASSED


def test_a_run_that_has_ended_is_not_revived_by_a_loop(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {1: loop()})
    with ledger.write() as tx:
        change_run(tx, scene.run_id, RunStatus.CANCELLED)

    assert scene.loop(1) is None

    assert scene.statuses() == ["completed", "failed"]
    assert scene.events("loop_") == []
