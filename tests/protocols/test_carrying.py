"""A protocol from its description to the last step, against a real remote and agents that are small programs."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.kernel import Conflict, Outcome, RatchetError, RunStatus, StepStatus
from ratchet.ledger.protocols import add_protocol_steps
from ratchet.ledger.runs import list_attempts
from ratchet.ledger.tables import steps
from ratchet.protocols.actions import (
    approve_step,
    create_protocol,
    open_pull_request,
    retry_latest,
    run_next_step,
    run_qa,
    run_step,
    start_protocol,
)
from ratchet.runtime import Worker, cancel_run, pause_run, resume_run
from tests.protocols.planned import change_settings
from tests.protocols.world import World, git
from tests.runtime.conftest import ended
from tests.waiting import eventually

ONE_DATABASE = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
DONE = StepStatus.COMPLETED


def finished(world: World, run_id: int) -> RunStatus:
    eventually(lambda: world.stands(run_id))
    return world.protocol(run_id).status


def test_a_protocol_is_planned_carried_out_and_pushed(world: World, worker: Worker) -> None:
    world.plan("Write a.\nwrite a.txt one", "Write b.\nwrite b.txt two")
    run_id = world.start()
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert world.statuses(run_id) == {"00-setup": DONE, "01-a": DONE, "02-b": DONE}
    subjects = world.git("log", "--format=%s", "main..0001-change").splitlines()
    assert subjects == [
        "feat(change): b [protocol-0001/02]",
        "feat(change): a [protocol-0001/01]",
        "chore(change): setup [protocol-0001/00]",
        "feat(protocol): add plan for 0001-change [protocol-0001/00]",
    ]
    assert world.git("show", "0001-change:b.txt") == "two"
    log = world.git("show", "0001-change:.protocols/0001-change/log.md").splitlines()
    assert [line.split(" - ")[-1] for line in log[1:]] == [
        "00-setup executed",
        "01-a executed",
        "02-b executed",
    ]
    assert world.protocol(run_id).pushed == world.git("rev-parse", "0001-change")
    assert (Path(world.protocol(run_id).worktree_path or "") / "b.txt").read_text() == "two\n"
    told = world.events(run_id)
    assert told.index("planned") < told.index("step_completed") < told.index("protocol_completed")
    # A remote that is a folder has no pull requests: that is said once, and again to whoever asks for one.
    assert told.count("open_pr_skipped") == 1
    with world.ledger.write(actor="test") as tx:
        asked = open_pull_request(tx, world.runtime, run_id)
    ended(world.ledger, asked)
    assert world.events(run_id).count("open_pr_skipped") == 2


@ONE_DATABASE
def test_findings_go_back_to_the_author_until_the_reviewer_passes(world: World, worker: Worker) -> None:
    world.plan("Write a.\nwrite a.txt bad\nfix a.txt good")
    run_id = world.start()
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    step = world.steps(run_id)[1]
    with world.ledger.read() as tx:
        tries = list_attempts(tx, step.step_id)
    assert [each.outcome for each in tries] == [Outcome.FAILED, Outcome.PASSED]
    assert world.git("show", "0001-change:a.txt") == "good"
    assert "qa_failed" in world.events(run_id)


@pytest.mark.soak
@ONE_DATABASE
def test_the_repositorys_own_check_decides_before_the_reviewer(world: World, worker: Worker) -> None:
    world.plan("Write a.\nwrite a.txt broken")
    run_id = world.start()
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert world.statuses(run_id)["01-a"] is StepStatus.FAILED
    assert "01-a" in (world.protocol(run_id).reason or "")
    assert "a.txt" not in world.git("ls-tree", "--name-only", "0001-change")


@pytest.mark.soak
@ONE_DATABASE
def test_steps_started_by_hand_run_one_by_one_and_an_unknown_engine_blocks(
    world: World, worker: Worker
) -> None:
    world.plan("Write a.\nwrite a.txt one")
    run_id = world.start(automatic=False)
    eventually(lambda: world.protocol(run_id).status is RunStatus.PLANNED)
    with world.ledger.write(actor="test") as tx:
        # As somebody does whose first start was not answered.
        again = start_protocol(tx, world.runtime, run_id)
    assert ended(world.ledger, again).result == {"protocol": run_id, "status": "running"}
    assert set(world.statuses(run_id).values()) == {StepStatus.PENDING}
    assert world.events(run_id).count("planned") == 1
    with world.ledger.write(actor="test") as tx:
        add_protocol_steps(
            tx,
            run_id,
            [
                {
                    "name": "02-nobody",
                    "step_index": 2,
                    "step_type": "work",
                    "spec": {"prompt_ref": "01-a.md", "engine_id": "nobody", "qa": {"policy": "skip"}},
                }
            ],
        )
        run_next_step(tx, world.runtime, run_id)
    eventually(lambda: world.statuses(run_id)["00-setup"] is DONE)
    for _ in range(2):
        with world.ledger.write(actor="test") as tx:
            run_next_step(tx, world.runtime, run_id)
        eventually(lambda: not any(each.status is StepStatus.RUNNING for each in world.steps(run_id)))
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert "there is no engine 'nobody'" in (world.protocol(run_id).reason or "")


@pytest.mark.soak
@ONE_DATABASE
def test_an_agent_that_dies_is_tried_again_and_then_the_step_has_failed(world: World, worker: Worker) -> None:
    world.plan("explode")
    run_id = world.start()
    assert finished(world, run_id) is RunStatus.BLOCKED
    step = world.steps(run_id)[1]
    assert step.status is StepStatus.FAILED
    assert "the agent broke" in (step.reason or "")
    with world.ledger.write(actor="test") as tx:
        retry_latest(tx, world.runtime, run_id)
    eventually(lambda: world.protocol(run_id).status is RunStatus.BLOCKED)
    assert world.steps(run_id)[1].retries == 1


@pytest.mark.soak
@ONE_DATABASE
def test_steps_that_need_nothing_of_each_other_run_side_by_side_and_both_stay(
    world: World, worker: Worker
) -> None:
    world.plan("Write a.\nwrite a.txt one", "Write b.\nwrite b.txt two", "Write c.\nwrite c.txt three")
    run_id = world.start(automatic=False)
    eventually(lambda: world.protocol(run_id).status is RunStatus.PLANNED)
    with world.ledger.write(actor="test") as tx:
        for step in world.steps(run_id):
            run_step(tx, world.runtime, step.step_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    files = world.git("ls-tree", "--name-only", "0001-change").split()
    assert {"setup.txt", "a.txt", "b.txt", "c.txt"} <= set(files)
    log = world.git("show", "0001-change:.protocols/0001-change/log.md")
    assert log.count(" executed") == 4


def test_of_twenty_who_ask_for_a_step_at_once_one_gets_it(world: World) -> None:
    with world.ledger.write(actor="test") as tx:
        run_id = create_protocol(tx, world.runtime, world.project_id, "0001-change")
        [step_id] = add_protocol_steps(
            tx, run_id, [{"name": "01-a", "step_index": 1, "step_type": "work", "spec": {}}]
        )

    def ask(_: int) -> bool:
        try:
            with world.ledger.write(actor="test") as tx:
                run_step(tx, world.runtime, step_id)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(20) as crowd:
        assert sum(crowd.map(ask, range(20))) == 1


@pytest.mark.soak
@ONE_DATABASE
def test_a_remote_that_refuses_the_push_blocks_and_resuming_pushes_once(world: World, worker: Worker) -> None:
    hook = world.remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    world.plan("Write a.\nwrite a.txt one")
    run_id = world.start()
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert "not today" in (world.protocol(run_id).reason or "")
    hook.unlink()
    with world.ledger.write(actor="test") as tx:
        resume_run(tx, world.runtime, run_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert world.git("show", "0001-change:a.txt") == "one"


@pytest.mark.soak
@ONE_DATABASE
def test_a_person_can_approve_what_the_reviewer_refused(world: World, worker: Worker) -> None:
    world.plan("Write a.\nwrite a.txt bad")
    run_id = world.start()
    assert finished(world, run_id) is RunStatus.BLOCKED
    with world.ledger.write(actor="test") as tx:
        approve_step(tx, world.runtime, world.steps(run_id)[1].step_id, by="Ada")
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert world.git("show", "0001-change:a.txt") == "bad"
    with pytest.raises(RatchetError), world.ledger.write(actor="test") as tx:
        approve_step(tx, world.runtime, world.steps(run_id)[1].step_id)


@pytest.mark.soak
@ONE_DATABASE
def test_what_was_judged_can_be_judged_once_more_without_its_author(world: World, worker: Worker) -> None:
    world.plan("Write a.\nwrite a.txt bad")
    run_id = world.start()
    assert finished(world, run_id) is RunStatus.BLOCKED
    step = world.steps(run_id)[1]
    with world.ledger.read() as tx:
        before = len(list_attempts(tx, step.step_id))
    with world.ledger.write(actor="test") as tx:
        milder = {**step.spec, "qa": {"policy": "full", "engine_id": "lenient"}}
        tx.connection.execute(sa.update(steps).where(steps.c.id == step.step_id).values(spec=milder))
        run_qa(tx, world.runtime, step.step_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert world.git("show", "0001-change:a.txt") == "bad"
    with world.ledger.read() as tx:
        authored = [each for each in list_attempts(tx, step.step_id) if each.outcome is not None]
    assert len(authored) == before


@pytest.mark.soak
@ONE_DATABASE
def test_pausing_stops_the_agent_and_resuming_goes_on(world: World, worker: Worker) -> None:
    with socket.socket() as gate:
        gate.bind(("127.0.0.1", 0))
        world.plan(f"Write a.\nwait {gate.getsockname()[1]}\nwrite a.txt one")
        run_id = world.start()
        eventually(lambda: world.statuses(run_id).get("01-a") is StepStatus.RUNNING)
        with world.ledger.write(actor="test") as tx:
            pause_run(tx, world.runtime, run_id)
        assert world.protocol(run_id).status is RunStatus.PAUSED
        gate.listen()
        with world.ledger.write(actor="test") as tx:
            resume_run(tx, world.runtime, run_id)
        assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert world.events(run_id).count("resumed") == 1


@pytest.mark.soak
@ONE_DATABASE
def test_what_was_cancelled_is_revived_by_nothing(world: World, worker: Worker) -> None:
    world.plan("explode")
    run_id = world.start()
    assert finished(world, run_id) is RunStatus.BLOCKED
    step = world.steps(run_id)[1]
    with world.ledger.write(actor="test") as tx:
        cancel_run(tx, world.runtime, run_id)
        cancel_run(tx, world.runtime, run_id)
    for action in (run_step, run_qa, approve_step):
        with pytest.raises(Conflict, match="cancelled"), world.ledger.write(actor="test") as tx:
            action(tx, world.runtime, step.step_id)
    assert world.protocol(run_id).status is RunStatus.CANCELLED


@pytest.mark.soak
@ONE_DATABASE
def test_a_worktree_that_somebody_changed_is_left_alone(world: World, worker: Worker) -> None:
    world.plan("Write a.\nwrite a.txt one")
    run_id = world.start(automatic=False)
    eventually(lambda: world.protocol(run_id).worktree_path is not None)
    worktree = Path(world.protocol(run_id).worktree_path or "")
    (worktree / "README.md").write_text("mine")
    with world.ledger.write(actor="test") as tx:
        for step in world.steps(run_id):
            run_step(tx, world.runtime, step.step_id)
    assert finished(world, run_id) is RunStatus.COMPLETED
    assert (worktree / "README.md").read_text() == "mine"
    assert "worktree_warning" in world.events(run_id)
    assert git(worktree, "status", "--porcelain") == "M README.md"
    # Nor is it removed when there are too many: only one that is as it was.
    change_settings(world.runtime, "protocols", worktrees=0)
    for name, stays in (("0002-change", True), ("0003-change", False)):
        planned = world.start(name, automatic=False)
        eventually(lambda: world.protocol(planned).worktree_path is not None)  # noqa: B023
        assert worktree.exists() is stays
        assert (world.protocol(run_id).worktree_path is not None) is stays
        if stays:
            git(worktree, "checkout", "--quiet", "README.md")
    assert world.git("rev-parse", "0001-change") == world.protocol(run_id).pushed
