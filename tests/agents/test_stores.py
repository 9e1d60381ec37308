"""One state for all versions of an agent: shared, taken over from before, migrated when the address moves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ratchet.agentkit import StateDamaged, StateMoved, StateStore
from ratchet.agents.contract import SHARED, AgentDirectory
from ratchet.agents.state import CannotCarry
from ratchet.agents.stores import AgentStates, Succession
from ratchet.config.workflow_settings import Agents
from tests.waiting import eventually

OLD, NEW, OTHER = "a" * 40, "b" * 40, "c" * 40
ANY = {"type": "object"}
TOTAL = "def migrate(state):\n    return {'total': state['count']}\n"


@pytest.fixture
def place(tmp_path: Path) -> AgentDirectory:
    return AgentDirectory(tmp_path)


def version(place: AgentDirectory, commit: str, migrate: str | None = None, **schema: Any) -> Path:
    directory = place.version(commit)
    directory.mkdir()
    (directory / "state_schema.json").write_text(json.dumps({**ANY, **schema}))
    if migrate is not None:
        (directory / "migrate.py").write_text(migrate)
    return directory


def succeeding(place: AgentDirectory, migrate: str = TOTAL, **planned: Any) -> AgentStates:
    """An agent whose next version wants another form of its state, which counts to 1 so far."""
    states = AgentStates(place)
    states.begin(version(place, OLD), OLD, {"count": 1}, "test")
    states.make_live(OLD)
    states.begin(version(place, NEW, migrate), NEW, {"total": 1}, "test")
    states.plan(NEW, Succession(store=OLD, parent=OLD, **planned))
    return states


def settle(states: AgentStates, commit: str) -> str | None:
    return asyncio.run(states.settle(commit, Agents()))


def state(place: AgentDirectory, commit: str) -> dict[str, Any]:
    return StateStore(place.version(commit)).read()


def test_a_state_of_before_is_taken_over_once_with_its_history(place: AgentDirectory) -> None:
    store = StateStore(version(place, OLD))
    store.begin({"count": 1}, by="runner")
    store.increment("count")
    states = AgentStates(place)
    for _ in range(2):
        states.adopt(OLD, OLD)
    assert StateStore(place.version(OLD)).place == place.states / OLD
    assert (state(place, OLD), store.at(1), states.live) == ({"count": 2}, {"count": 1}, OLD)
    store.increment("count")
    states.adopt(OLD, OLD)
    assert state(place, OLD) == {"count": 3}


def test_versions_of_one_form_work_on_one_state_and_another_form_keeps_its_own(place: AgentDirectory) -> None:
    for commit, schema in ((OLD, {}), (NEW, {}), (OTHER, {"maxProperties": 9})):
        StateStore(version(place, commit, **schema)).begin({"of": commit[0]})
    states = AgentStates(place)
    for commit in (OTHER, OLD, NEW):
        states.adopt(commit, NEW)
    assert [states.store_of(commit) for commit in (OLD, NEW, OTHER)] == [NEW, NEW, OTHER]
    StateStore(place.version(OLD)).append("list", 1)
    assert state(place, NEW) == {"of": "b", "list": [1]}
    with pytest.raises(StateMoved, match="nothing was written"):
        StateStore(place.version(OTHER)).increment("count")
    assert state(place, OTHER) == {"of": "c"}


@pytest.mark.parametrize("left", ["the copy", "the store"])
def test_a_takeover_that_was_killed_in_the_middle_is_done_again(place: AgentDirectory, left: str) -> None:
    StateStore(version(place, OLD)).begin({"count": 1})
    (place.states / f"{OLD}.new").mkdir(parents=True)
    (place.states / f"{OLD}.new" / "state.db").write_text("half")
    states = AgentStates(place)
    if left == "the store":
        states.adopt(OLD, OLD)
        (place.version(OLD) / SHARED).unlink()
    states.adopt(OLD, OLD)
    assert (state(place, OLD), states.store_of(OLD), states.live) == ({"count": 1}, OLD, OLD)


@pytest.mark.parametrize("where", ["", "../../etc", "/etc", "../states/../../x", "../states/" + "a" * 65])
def test_what_leads_elsewhere_is_no_state(place: AgentDirectory, where: str) -> None:
    directory = version(place, OLD)
    (directory / SHARED).write_text(where)
    with pytest.raises(StateDamaged, match="leads to no state"):
        StateStore(directory).read()


def test_a_link_to_a_state_is_not_followed(place: AgentDirectory) -> None:
    directory = version(place, OLD)
    (directory / SHARED).symlink_to("/etc/passwd")
    with pytest.raises(StateDamaged):
        StateStore(directory).read()


def test_the_state_is_migrated_as_it_is_when_the_version_takes_over(place: AgentDirectory) -> None:
    states = succeeding(place)
    old = StateStore(place.version(OLD))
    old.increment("count", 41)
    assert settle(states, NEW) == OLD
    assert (state(place, NEW), states.live) == ({"total": 42}, NEW)
    with pytest.raises(StateMoved):
        old.increment("count")
    StateStore(place.version(NEW)).increment("total")
    assert settle(states, NEW) is None
    assert (state(place, OLD), state(place, NEW)) == ({"count": 42}, {"total": 43})


@pytest.mark.parametrize(
    ("migrate", "reason"),
    [
        ("def migrate(state):\n    raise ValueError('no')\n", "no"),
        ("def migrate(state):\n    return {}\n", "loses"),
        ("def migrate(state):\n    return {'a': [state, state]}\n", None),
        ("def migrate(state):\n    while True:\n        pass\n", "migrate.py failed"),
    ],
    ids=["fails", "drops", "doubles", "hangs"],
)
def test_a_migration_that_fails_changes_nothing(
    place: AgentDirectory, migrate: str, reason: str | None
) -> None:
    states = succeeding(place, migrate)
    StateStore(place.version(OLD)).replace({"count": 7, "names": ["Ada", "Grace"]})
    with pytest.raises(CannotCarry, match=reason or "doubles"):
        asyncio.run(states.settle(NEW, Agents(call_seconds=1)))
    assert states.live == OLD
    assert StateStore(place.version(OLD)).increment("count") == 8
    assert state(place, NEW) == {"total": 1}


def test_what_a_person_approved_to_be_lost_is_lost(place: AgentDirectory) -> None:
    states = succeeding(place, "def migrate(state):\n    return {'total': 0}\n", may_lose=True)
    assert settle(states, NEW) == OLD
    assert state(place, NEW) == {"total": 0}


def test_an_edit_of_the_engine_is_brought_into_the_state_of_that_moment(place: AgentDirectory) -> None:
    states = succeeding(place, base={"count": 1}, staged={"total": 1, "tone": "kind"})
    StateStore(place.version(OLD)).increment("count")
    settle(states, NEW)
    assert state(place, NEW) == {"total": 2, "tone": "kind"}


def test_a_form_that_was_never_live_is_passed_through_on_the_way_to_the_next(place: AgentDirectory) -> None:
    states = succeeding(place)
    sums = "def migrate(state):\n    return {'sum': state['total']}\n"
    states.begin(version(place, OTHER, sums), OTHER, {"sum": 1}, "test")
    states.plan(OTHER, Succession(store=NEW, parent=NEW))
    # A version without a migration of its own works in the form of the one before.
    last = version(place, "d" * 40)
    states.lead(last, OTHER)
    StateStore(place.version(OLD)).increment("count")
    assert settle(states, "d" * 40) == OLD
    assert StateStore(last).read() == {"sum": 2}


def test_going_back_to_another_form_resumes_it_and_says_so_before(place: AgentDirectory) -> None:
    states = succeeding(place)
    settle(states, NEW)
    assert "nothing was changed since" in states.resumed(OLD, NEW).sentence
    StateStore(place.version(NEW)).increment("total")
    assert "what was changed since then (1 change) stays" in states.resumed(OLD, NEW).sentence
    assert settle(states, OLD) == NEW
    assert StateStore(place.version(OLD)).increment("count") == 2
    with pytest.raises(StateMoved):
        StateStore(place.version(NEW)).increment("total")
    assert settle(states, NEW) == OLD
    assert StateStore(place.version(NEW)).increment("total") == 3


def test_going_back_with_the_state_takes_what_was_written_last(place: AgentDirectory) -> None:
    states = succeeding(place)
    settle(states, NEW)
    states.carry(OLD, NEW)
    StateStore(place.version(NEW)).increment("total", 9)
    settle(states, OLD)
    assert state(place, OLD) == {"total": 10}
    assert StateStore(place.version(OLD)).at(1) == {"count": 1}


@pytest.mark.parametrize("died", ["before the store was closed", "before it was noted"])
def test_a_takeover_by_a_host_that_died_is_finished(place: AgentDirectory, died: str) -> None:
    states = succeeding(place)
    old, new = StateStore(place.version(OLD)), StateStore(place.version(NEW))
    if died == "before the store was closed":
        new.replace({"total": 999})
    else:
        settle(states, NEW)
        states.make_live(OLD)
        new.increment("total", 4)
    settle(states, NEW)
    assert states.live == NEW
    assert new.read() == {"total": 1 if died == "before the store was closed" else 5}
    with pytest.raises(StateMoved):
        old.increment("count")


WRITER = """
import sys
from ratchet.agentkit import StateMoved, StateStore
store = StateStore(sys.argv[1])
try:
    while True:
        print(store.increment("count"), flush=True)
except StateMoved:
    print("moved", flush=True)
"""


def test_every_write_that_was_acknowledged_is_in_the_state_after_a_migration(place: AgentDirectory) -> None:
    states = succeeding(place)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(place.version(OLD))], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        eventually(lambda: state(place, OLD)["count"] > 20)
        settle(states, NEW)
        printed = [line for writer in writers for line in writer.communicate(timeout=120)[0].split()]
    finally:
        for writer in writers:
            writer.kill()
    numbers = [int(line) for line in printed if line != "moved"]
    assert printed.count("moved") == 2
    assert state(place, NEW) == {"total": 1 + len(numbers)}


SETTLER = """
import asyncio, sys
from pathlib import Path
from ratchet.agents.contract import AgentDirectory
from ratchet.agents.stores import AgentStates
from ratchet.config.workflow_settings import Agents
print("begun", flush=True)
asyncio.run(AgentStates(AgentDirectory(Path(sys.argv[1]))).settle(sys.argv[2], Agents()))
"""


def test_a_migration_that_is_killed_is_done_again(place: AgentDirectory) -> None:
    states = succeeding(
        place, "import time\n\ndef migrate(state):\n    time.sleep(1)\n    return {'total': state['count']}\n"
    )
    settler = subprocess.Popen(
        [sys.executable, "-c", SETTLER, str(place.root), NEW], stdout=subprocess.PIPE, text=True
    )
    assert settler.stdout is not None
    settler.stdout.readline()
    os.kill(settler.pid, signal.SIGKILL)
    settler.communicate()
    assert StateStore(place.version(OLD)).increment("count") == 2
    settle(states, NEW)
    assert state(place, NEW) == {"total": 2}
