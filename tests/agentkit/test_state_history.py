"""Every state that there was: listed, read again, and made the present one again."""

import sqlite3
from datetime import UTC, datetime

import pytest

from ratchet.agentkit import NoSuchChange, StateInvalid, StateStore


def _count_to(store: StateStore, last: int) -> None:
    for number in range(1, last + 1):
        with store.edit(by=f"edit {number}") as state:
            state["count"] = number


def test_the_history_lists_the_newest_change_first(store: StateStore) -> None:
    began = datetime.now(UTC)
    _count_to(store, 5)
    changes = store.history(limit=3)
    assert [(change.number, change.by) for change in changes] == [(6, "edit 5"), (5, "edit 4"), (4, "edit 3")]
    assert all(began <= change.at <= datetime.now(UTC) and not change.recovered for change in changes)
    assert [change.number for change in store.history(before=4)] == [3, 2, 1]
    assert [change.number for change in store.history(before=100, limit=1)] == [6]
    assert store.history(before=1) == store.history(limit=0) == []


def test_every_earlier_state_can_be_read(store: StateStore) -> None:
    with store.edit() as state:
        state["notes"] = [f"note {number}" for number in range(60)]
    for number in range(60):
        with store.edit() as state:
            state["notes"][number] = f"changed {number}"
    for number in (1, 2, 3, 30, 61, 62):
        notes = store.at(number).get("notes", [])
        assert sum(note.startswith("changed") for note in notes) == max(0, number - 2)
    for number in (0, 63, -1):
        with pytest.raises(NoSuchChange, match=str(number)):
            store.at(number)


def test_a_small_change_of_a_large_value_costs_the_history_little(store: StateStore) -> None:
    (store.directory / "state_schema.json").write_text("{}")
    with store.edit() as state:
        state["people"] = {f"person {number}": "x" * 100 for number in range(1000)}
    for number in range(40):
        with store.edit() as state:
            state["people"][f"person {number}"] = "y"
    kept = sqlite3.connect(store.directory / "state.db")
    assert kept.execute("SELECT sum(length(value)) FROM undo").fetchone()[0] < 40 * 400
    kept.close()
    assert store.at(22)["people"]["person 19"] == "y"
    assert store.at(22)["people"]["person 20"] == "x" * 100


def test_an_earlier_state_is_restored_as_a_new_change(store: StateStore) -> None:
    _count_to(store, 3)
    change = store.restore(2, by="somebody")
    assert store.read() == {"count": 1}
    assert (change.number, change.by, change.restored) == (5, "somebody", 2)
    assert store.history(limit=1) == [change]
    assert store.restore(2) == change
    assert store.restore(5).number == 5
    with store.edit() as state:
        state["count"] += 10
    assert [store.at(number)["count"] for number in range(1, 7)] == [0, 1, 2, 3, 1, 11]


def test_a_state_that_the_present_schema_refuses_is_not_restored(store: StateStore) -> None:
    _count_to(store, 3)
    (store.directory / "state_schema.json").write_text('{"properties": {"count": {"minimum": 2}}}')
    with pytest.raises(StateInvalid, match="minimum"):
        store.restore(1)
    assert store.read() == {"count": 3}
    assert store.history(limit=1)[0].number == 4
