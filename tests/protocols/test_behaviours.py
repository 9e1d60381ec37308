"""Policies at work: a protocol that goes back, calls other steps and waits for CI, all without an operator."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from ratchet.forges import CheckState, ForgeEvent, ForgeEventKind
from ratchet.kernel import Outcome, RunStatus, StepStatus
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import ProtocolStep
from ratchet.ledger.runs import list_attempts
from ratchet.ledger.tables import steps as step_table
from ratchet.projects.clarifications import answer, ask
from ratchet.protocols.actions import retry_latest, run_qa, run_step
from ratchet.protocols.webhooks import take_delivery
from ratchet.runtime import Worker
from tests.protocols.planned import add_agent, change_settings, finished, lay_out, step, told
from tests.protocols.world import World
from tests.waiting import eventually

DONE, FAILED, WAITS = StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.PENDING
FULL = {"policy": "full"}
# Works only when it was told what was wrong, or when another step has left `a.txt`.
MOODY = """\
import pathlib, sys
if "# What was wrong" not in sys.stdin.read() and not pathlib.Path("a.txt").exists():
    sys.exit("not in the mood")
pathlib.Path("moody.txt").write_text("in the mood after all")
print("done")
"""
DYING = "import sys; sys.exit('it always dies')"


def loop(**more: Any) -> dict[str, Any]:
    return {"module_id": "again", "behavior": "loop", "step_back": 1, **more}


def trigger(agent: str, **more: Any) -> dict[str, Any]:
    return {"module_id": "call", "behavior": "trigger", "trigger_agent_id": agent, **more}


def by_agent(world: World, run_id: int) -> dict[str, ProtocolStep]:
    return {each.agent: each for each in world.steps(run_id)}


def tries(world: World, run_id: int) -> dict[str, int]:
    """How many attempts each step has had."""
    with world.ledger.read() as tx:
        return {each.agent: len(list_attempts(tx, each.step_id)) for each in world.steps(run_id)}


def standings(world: World, run_id: int) -> list[StepStatus]:
    return [each.status for each in world.steps(run_id)]


@pytest.mark.soak
@pytest.mark.parametrize("reason", ["exec_failed", "qa_failed"])
def test_a_loop_goes_back_and_everything_from_there_is_done_again_by_itself(
    world: World, worker: Worker, reason: str
) -> None:
    add_agent(world.runtime, "moody", MOODY)
    looping: Mapping[str, Any] = {
        "exec_failed": step("Be moody.", engine_id="moody", policies=[loop(max_iterations=2)]),
        "qa_failed": step("write b.txt bad\nfix b.txt good", qa=FULL, policies=[loop(max_iterations=2)]),
    }[reason]
    run_id = lay_out(world, {"x": step("write x.txt 1"), "b": looping, "c": step("write c.txt 3")})
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    [decided] = told(world, run_id, "loop_decision")
    data = {key: decided.data[key] for key in ("target_step_index", "steps_reset", "iterations", "reason")}
    assert data == {"target_step_index": 0, "steps_reset": [0, 1, 2], "iterations": 1, "reason": reason}
    assert tries(world, run_id) == {"x": 2, "b": 2, "c": 1}
    assert by_agent(world, run_id)["b"].runtime_state["loop_counts"] == {"again": 1}
    # Nobody had to unblock it, nor to ask for a step.
    assert not told(world, run_id, "run.blocked", "step_retry_enqueued")


@pytest.mark.soak
def test_a_loop_at_its_limit_blocks_and_leaves_the_other_steps_as_they_are(
    world: World, worker: Worker
) -> None:
    add_agent(world.runtime, "dying", DYING)
    looping = step("Try.", engine_id="dying", policies=[loop(max_iterations=1)])
    run_id = lay_out(world, {"x": step("write x.txt 1"), "b": looping, "c": step("write c.txt 3")})
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert standings(world, run_id) == [DONE, FAILED, WAITS]
    [limit] = told(world, run_id, "loop_limit_reached")
    assert (limit.data["iterations"], limit.data["max_iterations"]) == (1, 1)
    assert len(told(world, run_id, "loop_decision")) == 1
    assert "it always dies" in (world.protocol(run_id).reason or "")


@pytest.mark.soak
def test_a_loop_for_one_reason_is_passed_over_for_another(world: World, worker: Worker) -> None:
    change_settings(world.runtime, "protocols", fixes=0)
    add_agent(world.runtime, "dying", DYING)
    policies = [loop(max_iterations=1, condition="qa_failed")]
    run_id = lay_out(
        world,
        {
            "x": step("write x.txt 1"),
            "b": step("write b.txt bad", qa=FULL, engine_id="dying", policies=policies),
        },
    )
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert standings(world, run_id) == [DONE, FAILED]
    [skipped] = told(world, run_id, "loop_condition_skipped")
    assert (skipped.data["reason"], skipped.data["conditions"]) == ("exec_failed", ["qa_failed"])
    assert not told(world, run_id, "loop_decision")

    # Its author lives this time, and is refused by the reviewer: that is what the loop is for.
    failed = by_agent(world, run_id)["b"]
    with world.ledger.write(actor="test") as tx:
        living = {**failed.spec, "engine_id": "author"}
        tx.connection.execute(
            sa.update(step_table).where(step_table.c.id == failed.step_id).values(spec=living)
        )
        retry_latest(tx, world.runtime, run_id)
    assert finished(world, run_id) is RunStatus.BLOCKED
    [decided] = told(world, run_id, "loop_decision")
    assert decided.data["reason"] == "qa_failed"
    assert tries(world, run_id) == {"x": 2, "b": 3}


@pytest.mark.soak
def test_a_step_that_passes_calls_one_that_failed_and_that_one_is_done_at_once(
    world: World, worker: Worker
) -> None:
    change_settings(world.runtime, "protocols", fixes=0)
    add_agent(world.runtime, "moody", MOODY)
    run_id = lay_out(
        world,
        {
            "b": step("Be moody.", engine_id="moody"),
            "a": step("write a.txt one", qa=FULL, policies=[trigger("b", condition="qa_passed")]),
        },
        automatic=False,
    )
    b, a = world.steps(run_id)
    with world.ledger.write(actor="test") as tx:
        run_step(tx, world.runtime, b.step_id)
    assert finished(world, run_id) is RunStatus.BLOCKED
    with world.ledger.write(actor="test") as tx:
        run_step(tx, world.runtime, a.step_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    state = by_agent(world, run_id)["b"].runtime_state
    assert (state["last_triggered_by"], state["inline_trigger_depth"]) == ("01-a", 1)
    assert tries(world, run_id) == {"b": 2, "a": 1}
    [decided] = told(world, run_id, "trigger_decision")
    assert (decided.step_id, decided.data["target"]) == (a.step_id, "00-b")


@pytest.mark.soak
def test_a_step_that_calls_itself_comes_to_an_end(world: World, worker: Worker) -> None:
    change_settings(world.runtime, "protocols", fixes=0, trigger_depth=2)
    add_agent(world.runtime, "dying", DYING)
    run_id = lay_out(world, {"a": step("Try.", engine_id="dying", policies=[trigger("a")])})
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert tries(world, run_id) == {"a": 3}
    assert len(told(world, run_id, "trigger_inline_depth_exceeded")) == 1
    assert standings(world, run_id) == [FAILED]


@pytest.mark.soak
def test_a_step_that_is_being_worked_on_is_not_begun_anew_by_a_trigger(world: World, worker: Worker) -> None:
    with socket.socket() as gate:
        gate.bind(("127.0.0.1", 0))
        run_id = lay_out(
            world,
            {
                "slow": step(f"wait {gate.getsockname()[1]}\nwrite slow.txt 1", parallel_group="both"),
                "quick": step("write quick.txt 2", parallel_group="both", policies=[trigger("slow")]),
            },
        )
        eventually(lambda: bool(told(world, run_id, "trigger_skipped")))
        assert by_agent(world, run_id)["slow"].status is StepStatus.RUNNING
        gate.listen()
        assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    with world.ledger.read() as tx:
        made = list_attempts(tx, by_agent(world, run_id)["slow"].step_id)
    assert Outcome.ERROR not in [each.outcome for each in made]
    assert {each.data["target_status"] for each in told(world, run_id, "trigger_skipped")} == {"running"}


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["skip", "full"])
def test_what_passed_ci_is_reviewed_once_more_where_that_is_wanted(
    world: World, worker: Worker, policy: str
) -> None:
    change_settings(world.runtime, "protocols", qa_on_ci=True, ci="required")
    run_id = lay_out(world, {"a": step("write a.txt one", qa={"policy": policy})})
    eventually(lambda: world.stands(run_id) or by_agent(world, run_id)["a"].awaits_ci)
    commit = by_agent(world, run_id)["a"].commit
    with world.ledger.write(actor="test") as tx:
        passed = ForgeEvent(
            "github",
            "d-1",
            "check_run",
            ForgeEventKind.CHECK,
            commit=commit,
            check="test",
            state=CheckState.PASSED,
            outcome="success",
        )
        take_delivery(tx, world.runtime, get_project(tx, world.project_id), passed)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    [asked] = told(world, run_id, "qa_enqueued")
    assert asked.data["source"] == "ci_webhook"
    passed_by = "qa_skipped_policy" if policy == "skip" else "qa_passed"
    assert len(told(world, run_id, passed_by)) == 2
    # A second review is none of its author's business.
    assert tries(world, run_id) == {"a": 1}


@pytest.mark.soak
def test_a_review_that_had_to_wait_for_an_answer_is_done_once_and_counts(
    world: World, worker: Worker
) -> None:
    change_settings(world.runtime, "protocols", fixes=0)
    run_id = lay_out(world, {"a": step("write a.txt bad", qa=FULL)})
    assert finished(world, run_id) is RunStatus.BLOCKED
    [failed] = world.steps(run_id)
    with world.ledger.write(actor="test") as tx:
        asked = ask(
            tx, world.project_id, "taste", "Is bad a bad word?", applies_to="qa", blocking=True, run_id=run_id
        )
        run_qa(tx, world.runtime, failed.step_id)
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert standings(world, run_id) == [StepStatus.BLOCKED]
    with world.ledger.write(actor="test") as tx:
        answer(tx, world.runtime, asked.id, "yes", by="Ada")
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert standings(world, run_id) == [FAILED]
    assert len(told(world, run_id, "qa_judged")) == 1
    assert len(told(world, run_id, "qa_failed")) == 2
