"""What is done with an agent without an engine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents import actions
from ratchet.agents.contract import AgentDirectory, place_of
from ratchet.agents.state import CannotCarry
from ratchet.kernel import Conflict, Misuse, NotFound, StateChanged
from ratchet.ledger import Event, EventFilter
from ratchet.ledger.agents import (
    AgentRow,
    add_version,
    create_agent,
    end_creation,
    get_agent,
    move_current,
    quarantine_version,
)
from ratchet.ledger.events import since
from ratchet.ledger.runs import create_run
from ratchet.runtime import Runtime
from tests.waiting import eventually

A, B, C = (letter * 40 for letter in "abc")
ADA: dict[str, Any] = {"actor": "ada", "request_id": "r-1"}
COUNTER = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


@pytest.fixture
def greeter(runtime: Runtime) -> AgentDirectory:
    """An agent with three versions that were current one after the other. Their counts are 1, 2 and 3."""
    with runtime.ledger.write() as tx:
        agent = create_agent(tx, "greeter", "greets")
        end_creation(tx, agent.id, run_id=create_run(tx, "agent", "greeter"))
    place = place_of(runtime.home, "greeter")
    place.repository.mkdir(parents=True)
    for count, commit in enumerate((A, B, C), 1):
        place.version(commit).mkdir()
        (place.version(commit) / "state_schema.json").write_text(json.dumps(COUNTER))
        StateStore(place.version(commit)).begin({"count": count})
        with runtime.ledger.write() as tx:
            agent = get_agent(tx, "greeter")
            add_version(tx, agent, commit, f"0.{count}.0", parent=None, summary="", tools=[], run_id=None)
            move_current(tx, agent, commit, expected=agent.current, why="promoted")
    return place


def in_another_form(greeter: AgentDirectory, commit: str) -> None:
    """Have a version want its state otherwise than the others."""
    (greeter.version(commit) / "state_schema.json").write_text(json.dumps({**COUNTER, "title": "another"}))


def known(runtime: Runtime) -> AgentRow:
    with runtime.ledger.read() as tx:
        return get_agent(tx, "greeter")


def told(runtime: Runtime) -> list[Event]:
    """What Ada is said to have done."""
    with runtime.ledger.read() as tx:
        found = since(tx.connection, where=EventFilter(type="agent.*"))
    return [event for event in found if (event.actor, event.request_id) == ("ada", "r-1")]


def types(runtime: Runtime) -> list[str]:
    return [event.type for event in told(runtime)]


def count(place: AgentDirectory, commit: str) -> Any:
    return StateStore(place.version(commit)).read()["count"]


def times_open(file: Path) -> int:
    """How many descriptors this process has of a file."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += descriptor.readlink() == file
    return found


def quarantined(runtime: Runtime, commit: str) -> None:
    with runtime.ledger.write() as tx:
        quarantine_version(tx, get_agent(tx, "greeter"), commit, "it crashed")


def test_a_promotion_moves_the_address_once(runtime: Runtime, greeter: AgentDirectory) -> None:
    moved = actions.promote(runtime, "greeter", "0.1.0", **ADA)
    assert (moved.moved, moved.before, moved.version.commit, moved.agent.current) == (True, C, A, A)
    again = actions.promote(runtime, "greeter", A[:8], **ADA)
    assert (again.moved, again.before, again.version.commit) == (False, A, A)
    assert known(runtime).current == A
    assert types(runtime) == ["agent.promoted"]


def test_a_promotion_keeps_a_pin(runtime: Runtime, greeter: AgentDirectory) -> None:
    actions.pin(runtime, "greeter", **ADA)
    assert actions.promote(runtime, "greeter", A, **ADA).agent.pinned


def test_a_quarantined_version_is_promoted_only_by_force(runtime: Runtime, greeter: AgentDirectory) -> None:
    quarantined(runtime, A)
    for refused in (actions.promote, actions.rollback, actions.pin):
        with pytest.raises(Conflict, match="it crashed") as raised:
            refused(runtime, "greeter", A, **ADA)
        assert "--force" in (raised.value.hint or "")
    assert known(runtime).current == C
    assert types(runtime) == []
    moved = actions.promote(runtime, "greeter", A, force=True, **ADA)
    assert moved.version.reason is None
    assert types(runtime) == ["agent.released", "agent.promoted"]


def test_force_also_frees_the_current_version(runtime: Runtime, greeter: AgentDirectory) -> None:
    quarantined(runtime, C)
    with pytest.raises(Conflict):
        actions.promote(runtime, "greeter", C, **ADA)
    assert not actions.promote(runtime, "greeter", C, force=True, **ADA).moved
    assert types(runtime) == ["agent.released"]


def test_a_rollback_goes_back_one_version_at_a_time(runtime: Runtime, greeter: AgentDirectory) -> None:
    assert actions.rollback(runtime, "greeter", **ADA).version.commit == B
    assert actions.rollback(runtime, "greeter", **ADA).version.commit == A
    with pytest.raises(Conflict, match="no version of greeter to go back to"):
        actions.rollback(runtime, "greeter", **ADA)
    assert types(runtime) == ["agent.rolled_back"] * 2
    assert [count(greeter, commit) for commit in (A, B, C)] == [1, 2, 3]


def test_a_rollback_goes_to_what_was_current_not_to_what_is_newest(
    runtime: Runtime, greeter: AgentDirectory
) -> None:
    actions.promote(runtime, "greeter", A, **ADA)
    assert actions.rollback(runtime, "greeter", **ADA).version.commit == C


def test_a_rollback_passes_over_quarantined_versions(runtime: Runtime, greeter: AgentDirectory) -> None:
    quarantined(runtime, B)
    assert actions.rollback(runtime, "greeter", **ADA).version.commit == A


def test_a_rollback_to_a_named_version_is_done_once(runtime: Runtime, greeter: AgentDirectory) -> None:
    assert actions.rollback(runtime, "greeter", "0.1.0", **ADA).moved
    assert not actions.rollback(runtime, "greeter", "0.1.0", **ADA).moved
    assert known(runtime).current == A
    assert types(runtime) == ["agent.rolled_back"]


def test_versions_of_one_form_share_the_state_wherever_the_agent_goes(
    runtime: Runtime, greeter: AgentDirectory
) -> None:
    moved = actions.rollback(runtime, "greeter", A, carry_state=True, **ADA)
    assert [count(greeter, commit) for commit in (A, C)] == [3, 3]
    StateStore(greeter.version(A)).increment("count")
    assert count(greeter, C) == 4
    assert moved.resumed is not None
    assert moved.resumed.shared


def test_a_rollback_says_which_changes_would_stay_behind_before_it_is_done(
    runtime: Runtime, greeter: AgentDirectory
) -> None:
    in_another_form(greeter, A)
    for _ in range(2):
        StateStore(greeter.version(C)).increment("count")
    with pytest.raises(Conflict, match=r"what was changed since then \(3 changes\) stays") as raised:
        actions.rollback(runtime, "greeter", A, **ADA)
    assert "--leave-changes" in (raised.value.hint or "")
    assert "--carry-state" in (raised.value.hint or "")
    assert known(runtime).current == C
    moved = actions.rollback(runtime, "greeter", A, leave_changes=True, **ADA)
    assert moved.resumed is not None
    assert "3 changes" in moved.resumed.sentence
    assert (known(runtime).current, count(greeter, A), count(greeter, C)) == (A, 1, 5)


def test_the_state_is_carried_back_when_that_is_wanted(runtime: Runtime, greeter: AgentDirectory) -> None:
    in_another_form(greeter, A)
    actions.rollback(runtime, "greeter", A, carry_state=True, **ADA)
    assert [count(greeter, commit) for commit in (A, B, C)] == [3, 2, 3]
    assert StateStore(greeter.version(A)).at(1) == {"count": 1}


def test_a_state_that_does_not_fit_the_older_version_is_not_carried(
    runtime: Runtime, greeter: AgentDirectory
) -> None:
    (greeter.version(C) / "state_schema.json").write_text("{}")
    with StateStore(greeter.version(C)).edit() as state:
        state["count"] = "many"
    with pytest.raises(CannotCarry, match="many"):
        actions.rollback(runtime, "greeter", carry_state=True, **ADA)
    assert known(runtime).current == C
    assert count(greeter, B) == 2
    assert types(runtime) == []


def test_a_rollback_does_not_move_what_was_moved_meanwhile(runtime: Runtime, greeter: AgentDirectory) -> None:
    in_another_form(greeter, B)
    lock = greeter.version(B) / "state.lock"
    failures: list[Exception] = []

    def roll_back() -> None:
        try:
            actions.rollback(runtime, "greeter", carry_state=True, **ADA)
        except StateChanged as error:
            failures.append(error)

    thread = threading.Thread(target=roll_back)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread.start()
        eventually(lambda: times_open(lock) == 2)
        actions.promote(runtime, "greeter", A, actor="bob")
    thread.join()
    assert len(failures) == 1
    assert known(runtime).current == A


def test_a_pin_moves_and_holds(runtime: Runtime, greeter: AgentDirectory) -> None:
    for _ in range(2):
        pinned = actions.pin(runtime, "greeter", "0.2.0", **ADA)
        assert (pinned.agent.pinned, pinned.agent.current) == (True, B)
    for _ in range(2):
        assert not actions.unpin(runtime, "greeter", **ADA).pinned
        assert not actions.pin(runtime, "greeter", "latest", **ADA).agent.pinned
    assert known(runtime).current == B
    assert types(runtime) == ["agent.promoted", "agent.pinned", "agent.unpinned"]
    assert {event.data["commit"] for event in told(runtime)[1:]} == {B}


@pytest.mark.parametrize("operation", [actions.promote, actions.rollback, actions.pin])
def test_a_version_that_is_unknown_changes_nothing(
    runtime: Runtime, greeter: AgentDirectory, operation: Callable[..., Any]
) -> None:
    with pytest.raises(NotFound):
        operation(runtime, "greeter", "9.9.9", **ADA)
    with pytest.raises(Misuse):
        operation(runtime, "greeter", "no version", **ADA)
    with pytest.raises(NotFound):
        operation(runtime, "nobody", A, **ADA)
    assert known(runtime).current == C


def test_an_agent_that_is_still_made_cannot_be_moved(runtime: Runtime) -> None:
    with runtime.ledger.write() as tx:
        create_agent(tx, "greeter", "greets")
    for operation in (actions.rollback, actions.pin, actions.unpin):
        with pytest.raises(Conflict, match="creating"):
            operation(runtime, "greeter", **ADA)


def test_a_deleted_agent_is_put_away(runtime: Runtime, greeter: AgentDirectory) -> None:
    agent = known(runtime)
    grave = actions.delete(runtime, "greeter", **ADA)
    assert grave == runtime.home.absolute() / "agents" / ".deleted" / f"greeter-{agent.id}"
    assert (grave / A / "state.db").is_file()
    assert not greeter.root.exists()
    assert types(runtime) == ["agent.deleted"]
    with pytest.raises(NotFound):
        actions.delete(runtime, "greeter", **ADA)
    assert not greeter.root.exists()


def test_a_purged_agent_leaves_nothing(runtime: Runtime, greeter: AgentDirectory) -> None:
    (greeter.version(A) / "logs").mkdir(mode=0o500)
    assert actions.delete(runtime, "greeter", purge=True, **ADA) is None
    assert [path.name for path in greeter.root.parent.iterdir()] == [".deleted"]
    assert list((greeter.root.parent / ".deleted").iterdir()) == []


@pytest.mark.soak
def test_nothing_is_deleted_while_an_architect_works(runtime: Runtime, greeter: AgentDirectory) -> None:
    with greeter.held(), pytest.raises(Conflict, match="another Architect"):
        actions.delete(runtime, "greeter", **ADA)
    assert known(runtime).current == C
    assert greeter.version(C).is_dir()


def test_deleting_waits_for_an_architect_that_is_about_to_end(
    runtime: Runtime, greeter: AgentDirectory
) -> None:
    working = contextlib.ExitStack()
    working.enter_context(greeter.held())
    ending = threading.Timer(0.3, working.close)
    ending.start()
    assert actions.delete(runtime, "greeter", **ADA) is not None
    ending.join()


def test_nothing_is_deleted_when_the_directory_cannot_be_moved(
    runtime: Runtime, greeter: AgentDirectory
) -> None:
    grave = greeter.root.parent / ".deleted" / f"greeter-{known(runtime).id}"
    (grave / "something").mkdir(parents=True)
    with pytest.raises(Conflict, match="cannot be moved"):
        actions.delete(runtime, "greeter", **ADA)
    assert known(runtime).current == C
    assert greeter.version(C).is_dir()
    assert types(runtime) == []


def test_a_delete_that_died_after_the_move_can_be_done_again(
    runtime: Runtime, greeter: AgentDirectory
) -> None:
    grave = greeter.root.parent / ".deleted" / f"greeter-{known(runtime).id}"
    grave.parent.mkdir()
    greeter.root.rename(grave)
    assert actions.delete(runtime, "greeter", **ADA) == grave
    assert (grave / C / "state.db").is_file()
    assert not greeter.root.exists()
    with pytest.raises(NotFound):
        known(runtime)


def test_the_lock_of_a_directory_that_was_moved_is_another_one(
    runtime: Runtime, greeter: AgentDirectory
) -> None:
    with greeter.held():
        greeter.root.rename(greeter.root.with_name("elsewhere"))
        with greeter.held():
            assert list(greeter.root.iterdir()) == [greeter.root / ".lock"]


def test_the_state_is_read_and_restored(runtime: Runtime, greeter: AgentDirectory) -> None:
    with StateStore(greeter.version(C)).edit(by="runner") as state:
        state["count"] = 30
    assert actions.read_state(runtime, "greeter") == {"count": 30}
    assert actions.read_state(runtime, "greeter", "0.1.0") == {"count": 1}
    assert actions.state_at(runtime, "greeter", 1) == {"count": 3}
    change = actions.restore_state(runtime, "greeter", 1, **ADA)
    assert (change.number, change.restored, change.by) == (3, 1, "ada")
    assert actions.read_state(runtime, "greeter") == {"count": 3}
    history = actions.state_history(runtime, "greeter", limit=2)
    assert [(each.number, each.by) for each in history] == [(3, "ada"), (2, "runner")]
    assert [each.number for each in actions.state_history(runtime, "greeter", before=2)] == [1]
    (event,) = told(runtime)
    assert event.data == {"agent": "greeter", "commit": C, "change": 3, "restored": 1}


def test_what_is_wrong_with_a_state_is_said(runtime: Runtime, greeter: AgentDirectory) -> None:
    with pytest.raises(NotFound, match="change 99 of the state of greeter"):
        actions.restore_state(runtime, "greeter", 99, **ADA)
    for path in greeter.version(C).glob("state.db*"):
        path.unlink()
    (greeter.version(C) / "state.json").write_text("{ half")
    with pytest.raises(Conflict, match=r"state\.json cannot be used"):
        actions.read_state(runtime, "greeter")


def test_a_state_that_no_longer_fits_is_not_restored(runtime: Runtime, greeter: AgentDirectory) -> None:
    with StateStore(greeter.version(C)).edit() as state:
        state["count"] = 30
    strict = {**COUNTER, "properties": {"count": {"minimum": 10}}}
    (greeter.version(C) / "state_schema.json").write_text(json.dumps(strict))
    with pytest.raises(Conflict, match="minimum"):
        actions.restore_state(runtime, "greeter", 1, **ADA)
    assert count(greeter, C) == 30
    assert types(runtime) == []
