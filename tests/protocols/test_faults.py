"""Whatever breaks, a protocol ends in a state that says what happened and what to do next."""

from __future__ import annotations

import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger.runs import list_attempts
from ratchet.projects.secrets import put_secrets
from ratchet.protocols.actions import run_next_step, run_qa
from ratchet.runtime import Worker, cancel_run, list_jobs, resume_run
from tests.projects.processes import with_word
from tests.protocols.planned import NAME, add_agent, change_settings, finished, lay_out, step, told
from tests.protocols.world import World, git
from tests.waiting import eventually

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
DONE, FAILED, WAITS = StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.PENDING
FULL = {"policy": "full"}
# Ignores every polite word, and so does its child, which leaves its session.
STUBBORN = """\
import signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
stay = "import time\\nwhile True: time.sleep(0.05)"
subprocess.Popen([sys.executable, "-c", stay, "MARK-" "child"], start_new_session=True)
while True:
    time.sleep(0.05)
"""


@contextmanager
def closed_gate() -> Iterator[socket.socket]:
    """A port that nobody listens on until the test says so."""
    with socket.socket() as gate:
        gate.bind(("127.0.0.1", 0))
        yield gate


def waiting(gate: socket.socket, then: str, **more: Any) -> dict[str, Any]:
    return step(f"wait {gate.getsockname()[1]}\n{then}", **more)


def standings(world: World, run_id: int) -> list[StepStatus]:
    return [each.status for each in world.steps(run_id)]


def clone_of(world: World) -> Path:
    [found] = world.home.glob("projects/*/remote")
    return found


def resume(world: World, run_id: int) -> None:
    with world.ledger.write(actor="test") as tx:
        resume_run(tx, world.runtime, run_id)


def idle(world: World, run_id: int) -> None:
    """Wait until nobody works on the protocol."""

    def nobody() -> bool:
        with world.ledger.read() as tx:
            return all(job.status.final for job in list_jobs(tx, run_id=run_id))

    eventually(nobody)


def at_work(world: World, run_id: int, number: int) -> None:
    """Wait until a session for the step has begun."""
    step_id = world.steps(run_id)[number].step_id

    def begun() -> bool:
        with world.ledger.read() as tx:
            attempts = {each.id for each in list_attempts(tx, step_id)}
        return any(each.attempt_id in attempts for each in told(world, run_id, "session.started"))

    eventually(begun)


@pytest.mark.soak
def test_a_clone_that_vanished_between_steps_is_made_anew_with_its_branch(
    world: World, worker: Worker
) -> None:
    run_id = lay_out(world, {"a": step("write a.txt 1"), "b": step("write b.txt 2")}, automatic=False)
    for number in range(2):
        with world.ledger.write(actor="test") as tx:
            run_next_step(tx, world.runtime, run_id)
        idle(world, run_id)
        assert standings(world, run_id)[number] is DONE, world.protocol(run_id).reason
        shutil.rmtree(clone_of(world))
    assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert len(told(world, run_id, "branch_restored")) == 1
    assert world.git("show", f"{NAME}:a.txt") == "1"
    assert world.git("show", f"{NAME}:b.txt") == "2"


@pytest.mark.soak
def test_a_clone_that_vanishes_under_an_agent_costs_an_attempt_and_nothing_else(
    world: World, worker: Worker
) -> None:
    with closed_gate() as gate:
        run_id = lay_out(world, {"a": step("write a.txt 1"), "b": waiting(gate, "write b.txt 2")})
        eventually(lambda: standings(world, run_id)[0] is DONE)
        at_work(world, run_id, 1)
        shutil.rmtree(clone_of(world))
        gate.listen()
        assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert world.git("show", f"{NAME}:b.txt") == "2"
    with world.ledger.read() as tx:
        assert len(list_attempts(tx, world.steps(run_id)[1].step_id)) == 2


@pytest.mark.soak
def test_a_branch_that_is_nowhere_any_more_blocks_until_somebody_restores_it(
    world: World, worker: Worker
) -> None:
    run_id = lay_out(world, {"a": step("write a.txt 1")}, start=False, automatic=False)
    head = git(clone_of(world), "rev-parse", NAME)
    git(clone_of(world), "update-ref", "-d", f"refs/heads/{NAME}")
    with world.ledger.write(actor="test") as tx:
        run_next_step(tx, world.runtime, run_id)
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert "restore it" in (world.protocol(run_id).reason or "")
    git(clone_of(world), "update-ref", f"refs/heads/{NAME}", head)
    resume(world, run_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason


@pytest.mark.soak
def test_a_locked_worktree_is_left_alone_and_the_work_goes_on(world: World, worker: Worker) -> None:
    run_id = lay_out(world, {"a": step("write a.txt 1"), "b": step("write b.txt 2")}, automatic=False)
    with world.ledger.write(actor="test") as tx:
        run_next_step(tx, world.runtime, run_id)
    eventually(lambda: world.protocol(run_id).worktree_path is not None)
    shown = Path(world.protocol(run_id).worktree_path or "")
    eventually(lambda: (shown / "a.txt").exists())
    lock = Path(git(shown, "rev-parse", "--absolute-git-dir")) / "index.lock"
    lock.touch()
    with world.ledger.write(actor="test") as tx:
        run_next_step(tx, world.runtime, run_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert "index.lock" in (told(world, run_id, "worktree_warning")[-1].message or "")
    assert not (shown / "b.txt").exists()
    assert world.git("show", f"{NAME}:b.txt") == "2"
    assert lock.exists()


@pytest.mark.soak
def test_what_a_locked_branch_did_not_take_is_judged_again_and_not_made_again(
    world: World, worker: Worker
) -> None:
    change_settings(world.runtime, "protocols", fixes=0)
    with closed_gate() as gate:
        run_id = lay_out(world, {"a": waiting(gate, "write a.txt 1")})
        at_work(world, run_id, 0)
        lock = clone_of(world) / ".git" / "refs" / "heads" / f"{NAME}.lock"
        lock.touch()
        gate.listen()
        assert finished(world, run_id) is RunStatus.BLOCKED
    assert standings(world, run_id) == [FAILED]
    assert "lock" in (world.protocol(run_id).reason or "")
    lock.unlink()
    [refused] = world.steps(run_id)
    with world.ledger.write(actor="test") as tx:
        run_qa(tx, world.runtime, refused.step_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert world.git("show", f"{NAME}:a.txt") == "1"
    with world.ledger.read() as tx:
        assert len(list_attempts(tx, refused.step_id)) == 1


@pytest.mark.soak
def test_a_branch_of_somebody_else_is_not_touched(world: World, worker: Worker) -> None:
    world.git("branch", NAME, "main")
    before = world.git("rev-parse", NAME)
    world.plan("Write a.\nwrite a.txt one")
    run_id = world.start(NAME)
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert NAME in (world.protocol(run_id).reason or "")
    assert world.git("rev-parse", NAME) == before
    assert world.steps(run_id) == []


@pytest.mark.soak
@pytest.mark.parametrize(
    ("source", "more", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {}, "signal 9"),
        (None, {"install": "fetch it from the moon"}, "fetch it from the moon"),
    ],
    ids=["killed", "not installed"],
)
def test_an_engine_that_dies_or_is_not_there_is_a_reason_and_never_a_success(
    world: World, worker: Worker, source: str | None, more: dict[str, Any], said: str
) -> None:
    change_settings(world.runtime, "protocols", fixes=0)
    add_agent(world.runtime, "odd", source or "", **more)
    if source is None:
        gone = world.runtime.settings.engines.command["odd"].model_copy(update={"argv": ("no-such-agent",)})
        agents = {**world.runtime.settings.engines.command, "odd": gone}
        change_settings(world.runtime, "engines", command=agents)
    run_id = lay_out(world, {"a": step("Work.", engine_id="odd"), "b": step("write b.txt 1")})
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert standings(world, run_id) == [FAILED, WAITS]
    assert said in (world.protocol(run_id).reason or "")
    assert told(world, run_id, "step_execution_failed")


@pytest.mark.soak
def test_a_reviewer_that_dies_passes_nothing(world: World, worker: Worker) -> None:
    change_settings(world.runtime, "protocols", fixes=1)
    add_agent(world.runtime, "odd", "import sys; print('VERDICT: PASS'); sys.exit(3)", edits_files=False)
    run_id = lay_out(world, {"a": step("write a.txt good", qa={**FULL, "engine_id": "odd"})})
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert standings(world, run_id) == [FAILED]
    assert "a.txt" not in world.git("ls-tree", "--name-only", NAME)
    assert not told(world, run_id, "qa_passed", "step_completed")
    # Its author has done its part and is not asked again.
    with world.ledger.read() as tx:
        assert len(list_attempts(tx, world.steps(run_id)[0].step_id)) == 1


@pytest.mark.soak
def test_two_protocols_at_once_and_a_base_that_moves_do_not_disturb_each_other(
    world: World, worker: Worker
) -> None:
    first, second = "0001-one", "0002-two"
    base = world.git("rev-parse", "main")
    with closed_gate() as gate:
        runs = [
            lay_out(world, {"a": waiting(gate, f"write {name}.txt 1"), "b": step("write b.txt 2")}, name=name)
            for name in (first, second)
        ]
        for run_id in runs:
            at_work(world, run_id, 0)
        seed = world.home / "seed"
        (seed / "README.md").write_text("# Another beginning\n")
        git(seed, "commit", "-qam", "move on")
        git(seed, "push", "-q", str(world.remote), "main")
        gate.listen()
        assert [finished(world, run_id) for run_id in runs] == [RunStatus.COMPLETED] * 2
    for name, other in ((first, second), (second, first)):
        files = world.git("ls-tree", "--name-only", name).split()
        assert f"{name}.txt" in files
        assert f"{other}.txt" not in files
        assert world.git("merge-base", "main", name) == base
    assert world.git("log", "-1", "--format=%s", "main") == "move on"


@pytest.mark.soak
def test_cancelling_ends_every_process_of_the_agent(world: World, worker: Worker) -> None:
    mark = f"stubborn-{uuid.uuid4()}"
    add_agent(world.runtime, "stubborn", STUBBORN.replace("MARK", mark))
    run_id = lay_out(world, {"a": step("Work.", engine_id="stubborn"), "b": step("write b.txt 1")})
    eventually(lambda: bool(with_word(f"{mark}-child")))
    with world.ledger.write(actor="test") as tx:
        cancel_run(tx, world.runtime, run_id)
    eventually(lambda: not with_word(mark))
    assert world.protocol(run_id).status is RunStatus.CANCELLED
    assert set(standings(world, run_id)) == {StepStatus.CANCELLED}
    with world.ledger.read() as tx:
        [attempt] = list_attempts(tx, world.steps(run_id)[0].step_id)
    assert attempt.ended_at is not None


@pytest.mark.soak
def test_what_cannot_be_carried_for_now_is_blocked_and_goes_on_when_it_is_mended(
    world: World, worker: Worker
) -> None:
    run_id = lay_out(world, {"a": step("write a.txt 1")}, start=False, automatic=False)
    with world.ledger.write(actor="test") as tx:
        put_secrets(tx, world.runtime, world.project_id, {"git_token": "a-token-of-the-test"})
    good = world.runtime.settings.projects.secret_key
    change_settings(world.runtime, "projects", secret_key=SecretStr(Fernet.generate_key().decode()))
    with world.ledger.write(actor="test") as tx:
        run_next_step(tx, world.runtime, run_id)
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert "key" in (world.protocol(run_id).reason or "")
    change_settings(world.runtime, "projects", secret_key=good)
    resume(world, run_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
