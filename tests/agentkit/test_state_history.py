"""Every state that there was: listed, read again, made the present one again, and put in order after a crash."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ratchet.agentkit import HistoryDamaged, NoSuchChange, StateInvalid, StateStore


def _count_to(store: StateStore, last: int) -> None:
    for number in range(1, last + 1):
        with store.edit(by=f"edit {number}") as state:
            state["count"] = number


def _lines(store: StateStore) -> list[bytes]:
    return (store.directory / "state.history.jsonl").read_bytes().splitlines(keepends=True)


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


@pytest.mark.soak
def test_a_small_change_of_a_large_state_costs_the_history_little(store: StateStore) -> None:
    with store.edit() as state:
        state["notes"] = ["x" * 100] * 1000
    before = (store.directory / "state.history.jsonl").stat().st_size
    _count_to(store, 40)
    assert (store.directory / "state.history.jsonl").stat().st_size - before < 40 * 400
    assert store.at(42)["count"] == 40


def test_a_long_history_is_not_read_as_a_whole(store: StateStore) -> None:
    """Ten thousand lines of ten kilobytes, of which a handful is looked at."""
    path = store.directory / "state.history.jsonl"
    said = json.loads(path.read_bytes())
    with path.open("wb") as file:
        for number in range(1, 10_001):
            said = {**said, "number": number, "pad": "x" * 10_000}
            file.write(json.dumps(said, separators=(",", ":")).encode() + b"\n")
    read = _bytes_read()
    assert store.at(7_777) == {"count": 0}
    assert [change.number for change in store.history(limit=2, before=5_000)] == [4_999, 4_998]
    with store.edit() as state:
        state["count"] = 1
    assert store.history(limit=1)[0].number == 10_001
    assert _bytes_read() - read < 20_000_000 < path.stat().st_size // 4


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("\n")[0].removeprefix("rchar: "))


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


@pytest.mark.parametrize("damage", ["missing", "{", ""])
def test_a_state_that_is_gone_or_damaged_is_restored(store: StateStore, damage: str) -> None:
    _count_to(store, 3)
    path = store.directory / "state.json"
    path.unlink() if damage == "missing" else path.write_text(damage)
    assert store.restore(3).number == 5
    assert store.read() == {"count": 2}


def test_a_file_changed_by_hand_is_taken_into_the_history(store: StateStore) -> None:
    (store.directory / "state.json").write_text('{"count": 7}')
    assert store.read() == {"count": 7}
    with store.edit() as state:
        state["count"] += 1
    assert [(change.number, change.recovered) for change in store.history()] == [
        (3, False),
        (2, True),
        (1, False),
    ]
    assert [store.at(number)["count"] for number in (1, 2, 3)] == [0, 7, 8]


def test_a_state_without_a_history_begins_one(store: StateStore) -> None:
    (store.directory / "state.history.jsonl").unlink()
    with store.edit() as state:
        state["count"] = 1
    assert [(change.number, change.recovered) for change in store.history()] == [(2, False), (1, True)]


def test_a_change_whose_writer_died_before_the_newline_keeps_its_name(store: StateStore) -> None:
    _count_to(store, 2)
    path = store.directory / "state.history.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert store.history(limit=1)[0].number == 2
    with store.edit(by="next") as state:
        state["count"] = 9
    assert [change.by for change in store.history()] == ["next", "edit 2", "edit 1", "test"]
    assert store.at(3) == {"count": 2}


def test_a_change_whose_writer_died_before_the_state_was_replaced_never_was(store: StateStore) -> None:
    _count_to(store, 2)
    path = store.directory / "state.history.jsonl"
    announced = path.read_bytes()[:-1]
    (store.directory / "state.json").write_text('{"count": 1}')
    path.write_bytes(announced)
    with store.edit(by="next") as state:
        state["count"] = 9
    assert [change.by for change in store.history()] == ["next", "edit 1", "test"]
    assert store.at(3) == {"count": 9}


@pytest.mark.parametrize("torn", [b'{"number":4,"at":"20', b"\0" * 5000, b"\0\0\0\n", b"{}\n"])
def test_a_torn_last_line_is_cut_off(store: StateStore, torn: bytes) -> None:
    _count_to(store, 2)
    with (store.directory / "state.history.jsonl").open("ab") as file:
        file.write(torn)
    assert [change.number for change in store.history()] == [3, 2, 1]
    assert store.at(3) == {"count": 2}
    _count_to(store, 1)
    assert [change.number for change in store.history()] == [4, 3, 2, 1]
    assert all(json.loads(line)["digest"] for line in _lines(store))


def test_a_history_that_was_tampered_with_is_told(store: StateStore) -> None:
    _count_to(store, 3)
    path = store.directory / "state.history.jsonl"
    lines = _lines(store)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b'"count":1', b'"count":5'), *lines[2:]]))
    with pytest.raises(HistoryDamaged, match="change 2"):
        store.at(2)
    path.write_bytes(b"".join([*lines[:2], b"no entry\n", b"nor this\n"]))
    with pytest.raises(HistoryDamaged, match="no entry"), store.edit():
        pytest.fail("entered")
    assert store.read() == {"count": 3}
