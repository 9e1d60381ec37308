"""Triggers on both databases: which step they put in line, and which they leave alone."""

from __future__ import annotations

import pytest

from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger import Ledger, change_run
from tests.protocols.policies.scene import make_scene, trigger


def test_a_trigger_puts_a_failed_step_in_line(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {0: trigger("b")})

    decision = scene.trigger(0)

    assert decision is not None
    assert (decision.target, decision.depth) == ("01-b", 1)
    assert scene.statuses() == ["completed", "pending"]
    assert scene.state(1) == {"triggered": True, "last_triggered_by": "00-a", "inline_trigger_depth": 1}
    [event] = scene.events("trigger_")
    assert event.type == "trigger_decision"
    assert (event.data["target"], event.data["depth"], event.data["reason"]) == ("01-b", 1, "qa_passed")


def test_a_trigger_to_an_agent_that_no_step_has_does_nothing(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {0: trigger("nobody")})

    assert scene.trigger(0) is None

    assert scene.statuses() == ["completed", "failed"]
    assert scene.told("trigger_") == ["trigger_missing_target"]


@pytest.mark.parametrize("status", ["completed", "cancelled", "running", "needs_qa"])
def test_what_is_done_or_being_done_is_left_alone(ledger: Ledger, status: str) -> None:
    scene = make_scene(ledger, ["completed", status], {0: trigger("b")})

    assert scene.trigger(0) is None

    assert scene.statuses() == ["completed", status]
    [event] = scene.events("trigger_")
    assert (event.type, event.data["target_status"]) == ("trigger_skipped", status)


def test_a_step_that_waits_for_ci_can_be_triggered(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "needs_qa"], {0: trigger("b")})
    scene.change(1, awaits_ci=True)

    assert scene.trigger(0) is not None

    assert (scene.step(1).status, scene.step(1).awaits_ci) == (StepStatus.PENDING, False)


def test_a_step_that_triggers_itself_comes_to_an_end(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["failed"], {0: trigger("a")})

    rounds = 0
    while scene.trigger(0, "exec_failed") is not None:
        rounds += 1
        scene.change(0, runtime_state={**scene.state(0), "triggered": False})
        scene.move(0, StepStatus.RUNNING, StepStatus.FAILED)

    assert rounds == 3
    assert scene.statuses() == ["failed"]
    assert scene.told("trigger_") == ["trigger_decision"] * 3 + ["trigger_inline_depth_exceeded"]


def test_two_steps_that_trigger_each_other_come_to_an_end(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["failed", "failed"], {0: trigger("b"), 1: trigger("a")})

    here, rounds = 0, 0
    while scene.trigger(here, "exec_failed", max_depth=5) is not None:
        here, rounds = 1 - here, rounds + 1
        scene.change(here, runtime_state={**scene.state(here), "triggered": False})
        scene.move(here, StepStatus.RUNNING, StepStatus.FAILED)

    assert rounds == 5


def test_a_trigger_told_twice_counts_once(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "pending"], {0: trigger("b")})

    first, second = scene.trigger(0, "exec_completed"), scene.trigger(0, "qa_passed")

    assert first is not None
    assert second is not None
    assert (first.target_step_id, first.depth) == (second.target_step_id, second.depth)
    assert scene.told("trigger_") == ["trigger_decision"]


def test_a_trigger_for_another_reason_says_that_it_is_not_meant(ledger: Ledger) -> None:
    scene = make_scene(
        ledger,
        ["completed", "failed", "failed"],
        {0: [trigger("b", "first", conditions=[{"on": "exec_failed"}]), trigger("c", "second")]},
    )

    decision = scene.trigger(0)

    assert decision is not None
    assert decision.module_id == "second"
    assert scene.statuses() == ["completed", "failed", "pending"]
    assert scene.told("trigger_") == ["trigger_condition_skipped", "trigger_decision"]


def test_the_target_agent_counts_when_no_trigger_agent_is_named(ledger: Ledger) -> None:
    policy = {"moduleId": "m", "behavior": {"type": "trigger", "targetAgentId": "b"}}
    scene = make_scene(ledger, ["completed", "blocked"], {0: policy})

    assert scene.trigger(0) is not None

    assert scene.statuses() == ["completed", "pending"]


def test_a_run_that_has_ended_is_not_revived_by_a_trigger(ledger: Ledger) -> None:
    scene = make_scene(ledger, ["completed", "failed"], {0: trigger("b")})
    with ledger.write() as tx:
        change_run(tx, scene.run_id, RunStatus.CANCELLED)

    assert scene.trigger(0) is None

    assert scene.statuses() == ["completed", "failed"]
