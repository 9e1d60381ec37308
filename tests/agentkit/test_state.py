"""Reading and changing a state."""

import copy
import json
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from ratchet.agentkit import (
    Misused,
    SchemaInvalid,
    StateBusy,
    StateDamaged,
    StateExists,
    StateInvalid,
    StateMissing,
    StateMoved,
    StateStore,
)


def test_an_edit_is_read_back_one_key_by_itself_too(store: StateStore) -> None:
    with store.edit() as state:
        state["count"] = 3
        state["notes"] = ["a", "ü"]
    assert store.read() == {"count": 3, "notes": ["a", "ü"]}
    assert (store.get("notes"), store.get("none"), store.get("none", 7)) == (["a", "ü"], None, 7)


def test_the_store_is_a_block_itself_and_takes_its_directory_as_a_text(store: StateStore) -> None:
    same = StateStore(str(store.directory))
    with same as state:
        state["count"] += 1
    with pytest.raises(ZeroDivisionError), same as state:
        state["count"] = 1 // 0
    assert store.read() == {"count": 1}


def test_what_is_done_to_the_dict_after_the_block_is_lost(store: StateStore) -> None:
    with store.edit() as state:
        state["notes"] = notes = ["kept"]
    notes.append("late")
    state["count"] = 9
    store.read()["count"] = 9
    assert store.read() == {"count": 0, "notes": ["kept"]}


def test_a_block_that_raises_writes_nothing_and_gives_the_lock_back(store: StateStore) -> None:
    with pytest.raises(ZeroDivisionError), store.edit() as state:
        state["count"] = 1 // 0
    with store.edit() as state:
        assert state == {"count": 0}
    assert len(store.history()) == 1


def test_an_unchanged_state_is_not_written(store: StateStore) -> None:
    with store.edit() as state:
        state["count"] = 0
        state["new"] = 1
        del state["new"]
    assert len(store.history()) == 1


@pytest.mark.parametrize("new", [0.0, False])
def test_a_number_of_another_kind_is_a_change(store: StateStore, new: object) -> None:
    (store.directory / "state_schema.json").write_text("{}")
    with store.edit() as state:
        state["count"] = new
    assert repr(store.read()["count"]) == repr(new)


def test_a_state_that_the_schema_refuses_is_not_written(store: StateStore) -> None:
    with (
        pytest.raises(StateInvalid, match=r"is refused by state_schema\.json") as caught,
        store.edit() as state,
    ):
        state["notes"] = ["fine", 7]
    assert caught.value.path == "state.notes[1]"
    assert store.read() == {"count": 0}
    assert len(store.history()) == 1


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "does not exist"),
        ("[]", "no object"),
        ("{", "not JSON"),
        ('{"type": "wrong"}', "no JSON Schema"),
        ('{"$ref": "http://127.0.0.1:9/schema"}', "cannot be followed"),
        ('{"$ref": "#"}', "cannot be followed"),
        ('{"properties": {"count": {"$ref": "#/nowhere"}}}', "cannot be followed"),
        ('{"patternProperties": {"(": {}}}', "schema"),
    ],
)
def test_without_a_usable_schema_nothing_is_written(store: StateStore, schema: str | None, said: str) -> None:
    path = store.directory / "state_schema.json"
    path.unlink() if schema is None else path.write_text(schema)
    with pytest.raises(SchemaInvalid, match=said), store.edit() as state:
        state["count"] = 1
    assert store.read() == {"count": 0}


def test_a_changed_schema_counts_at_once(store: StateStore) -> None:
    (store.directory / "state_schema.json").write_text('{"properties": {"count": {"maximum": 1}}}')
    with pytest.raises(StateInvalid, match="maximum"), store.edit() as state:
        state["count"] = 2


def test_the_same_thread_cannot_open_the_state_twice(store: StateStore) -> None:
    again = StateStore(store.directory / "." / ".." / store.directory.name)
    with store.edit() as state:
        state["count"] = 1
        with pytest.raises(StateBusy, match="this thread already holds"), again.edit():
            pytest.fail("entered twice")
    assert store.read() == {"count": 1}


def test_patience_ends_while_another_thread_holds_the_lock(store: StateStore) -> None:
    hurried = StateStore(store.directory, patience=0.05)
    caught: list[Exception] = []

    def try_it() -> None:
        try:
            with hurried.edit():
                pass
        except StateBusy as error:
            caught.append(error)

    with store.locked():
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert "another process has held" in str(caught[0])


def test_locked_gives_the_state_and_keeps_writers_out(store: StateStore) -> None:
    def add() -> None:
        with store.edit() as state:
            state["count"] += 1

    thread = threading.Thread(target=add)
    with store.locked() as state:
        thread.start()
        state["count"] = 100
        assert store.read() == {"count": 0}
    thread.join()
    assert store.read() == {"count": 1}


@pytest.mark.soak
def test_threads_lose_no_edit(store: StateStore) -> None:
    def add() -> None:
        for _ in range(25):
            with store.edit() as state:
                state["count"] += 1

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read() == {"count": 200}
    assert [change.number for change in store.history(limit=1000)] == list(range(201, 0, -1))


def test_a_process_forked_inside_an_edit_waits_like_every_other(store: StateStore) -> None:
    with store.edit() as state:
        child = os.fork()
        if child == 0:
            os._exit(_refused(store, "another process has held"))
        _, status = os.waitpid(child, 0)
        state["count"] = 1
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.read() == {"count": 1}


def _refused(store: StateStore, why: str) -> int:
    """0 if an edit is refused for that reason."""
    try:
        with StateStore(store.directory, patience=0.05).edit():
            return 1
    except StateBusy as error:
        return 0 if why in str(error) else 2


def test_a_process_forked_inside_an_edit_cannot_finish_it(store: StateStore) -> None:
    child = 1
    try:
        with store.edit() as state:
            child = os.fork()
            state["count"] = 5 if child else 7
    except StateBusy:
        os._exit(0 if child == 0 else 1)
    if child == 0:
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.read() == {"count": 5}


def test_a_removed_lock_file_does_not_let_two_in(store: StateStore) -> None:
    with store.edit() as state:
        state["count"] = 1
    (store.directory / "state.lock").unlink()
    with store.edit() as state:
        state["count"] += 1
    assert store.read() == {"count": 2}


def test_the_first_state_is_written_once(store: StateStore) -> None:
    assert store.begin({"count": 0}).number == 1
    with pytest.raises(StateExists, match="exists already"):
        store.begin({"count": 1})
    assert [change.by for change in store.history()] == ["test"]


def test_no_state_is_not_an_empty_one(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    with pytest.raises(StateMissing, match="begin"):
        store.read()
    with pytest.raises(StateMissing), store.edit():
        pytest.fail("entered")
    with pytest.raises(StateMissing, match="no directory"), StateStore(tmp_path / "absent").locked():
        pytest.fail("entered")
    assert store.history() == []


def test_a_damaged_file_is_told_and_never_overwritten_by_an_edit(store: StateStore) -> None:
    content = b"no database, however long it is read " * 40
    for path in store.directory.glob("state.db*"):
        path.unlink()
    (store.directory / "state.db").write_bytes(content)
    with pytest.raises(StateDamaged):
        store.read()
    with pytest.raises(StateDamaged), store.edit():
        pytest.fail("entered")
    assert (store.directory / "state.db").read_bytes() == content


def test_a_trigger_that_an_agent_put_there_is_not_run(store: StateStore) -> None:
    other = sqlite3.connect(store.directory / "state.db")
    other.execute("CREATE TRIGGER trap AFTER UPDATE ON entries BEGIN DELETE FROM changes; END")
    other.commit()
    other.close()
    again = store.directory.rename(store.directory.with_name("moved"))
    with pytest.raises(StateDamaged, match="other tables"):
        StateStore(again).read()


def test_a_link_is_not_followed(store: StateStore, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.json"
    secret.write_text('{"count": 42}')
    for name in ("state.db", "state_schema.json", "state.lock"):
        path = store.directory / name
        kept = path.read_bytes()
        path.unlink()
        path.symlink_to(secret)
        with pytest.raises(StateDamaged, match="no plain file"), store.edit() as state:
            state["count"] = 1
        path.unlink()
        path.write_bytes(kept)
    assert secret.read_text() == '{"count": 42}'


def test_a_pipe_in_place_of_the_state_does_not_block(store: StateStore) -> None:
    (store.directory / "state.db").unlink()
    os.mkfifo(store.directory / "state.db")
    with pytest.raises(StateDamaged, match="no plain file"):
        store.read()


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 1000])
def test_who_changed_it_must_be_a_short_name(store: StateStore, name: str) -> None:
    with pytest.raises(Misused), store.edit(by=name):
        pytest.fail("entered")


def test_only_its_own_files_are_left_in_the_directory(store: StateStore) -> None:
    with store.edit() as state:
        state["count"] = 1
    assert sorted(path.name for path in store.directory.iterdir()) == [
        "state.db",
        "state.db-shm",
        "state.db-wal",
        "state.lock",
        "state_schema.json",
    ]


LARGE = {"count": 0, "notes": ["x" * 100] * 1000, "people": {"Ada": 1}}


@pytest.fixture
def large(tmp_path_factory: pytest.TempPathFactory) -> StateStore:
    """A state of which an edit reads only what it is asked for."""
    store = StateStore(tmp_path_factory.mktemp("large"))
    (store.directory / "state_schema.json").write_text("{}")
    store.begin(LARGE)
    return store


def test_what_was_not_read_is_as_good_as_what_was(large: StateStore) -> None:
    with large.edit() as state:
        assert (dict(state), {**state}, state | {}, copy.deepcopy(state), state.copy()) == (LARGE,) * 5
    with large.edit() as state:
        assert json.loads(json.dumps(state)) == LARGE
        assert (len(state), "people" in state, sorted(state)) == (3, True, ["count", "notes", "people"])
    with large.edit() as state:
        assert state == LARGE
        assert (state.pop("people"), state.pop("people", 7), state.get("people", 8)) == ({"Ada": 1}, 7, 8)
        assert state.setdefault("notes", []) == LARGE["notes"]
        state["notes"].append("last")
    assert large.read() == {"count": 0, "notes": [*LARGE["notes"], "last"]}  # type: ignore[misc]
    assert large.at(1) == LARGE


def test_a_value_that_was_not_read_in_the_block_cannot_be_read_behind_it(large: StateStore) -> None:
    with large.edit() as state:
        state["count"] += 1
    assert state["count"] == 1
    with pytest.raises(Misused, match="not read inside the block"):
        state["notes"]
    assert len(large.history()) == 2


def test_a_changed_key_of_a_large_state_is_held_against_the_schema(large: StateStore) -> None:
    schema = {
        "type": "object",
        "required": ["people"],
        "properties": {"count": {"$ref": "#/$defs/few"}, "people": {}},
        "additionalProperties": {"type": "array"},
        "$defs": {"few": {"maximum": 3}},
    }
    (large.directory / "state_schema.json").write_text(json.dumps(schema))
    for key, value, said in (("count", 4, "maximum"), ("more", 1, "array"), ("people", None, "required")):
        with pytest.raises(StateInvalid, match=said), large.edit() as state:
            state.update({key: value}) if value else state.pop(key)
    (large.directory / "state_schema.json").write_text(json.dumps({**schema, "minProperties": 4}))
    with pytest.raises(StateInvalid, match=r"refused by state_schema\.json"), large.edit() as state:
        state["count"] = 2
    assert large.read() == LARGE


def test_operations_that_commute(store: StateStore) -> None:
    (store.directory / "state_schema.json").write_text("{}")
    assert [store.increment("count"), store.increment("count", 2), store.increment("new", -0.5)] == [
        1,
        3,
        -0.5,
    ]
    assert [store.append("log", "a"), store.append("log", {"b": [1]}), store.append("log", "a")] == [1, 2, 3]
    assert [store.add("tags", each) for each in ("x", "y", "x", 1, 1.0, True, 1)] == [
        True,
        True,
        False,
        True,
        True,
        True,
        False,
    ]
    with store.edit() as state:
        state["log"].append("z")
        state["tags"].remove("x")
    assert store.add("tags", "x")
    assert store.append("log", "end") == 5
    assert store.read() == {
        "count": 3,
        "new": -0.5,
        "log": ["a", {"b": [1]}, "a", "z", "end"],
        "tags": ["y", 1, 1.0, True, "x"],
    }
    states = [store.at(change.number) for change in reversed(store.history(limit=100))]
    assert [each.get("log", []) for each in states][4:7] == [["a"], ["a", {"b": [1]}], ["a", {"b": [1]}, "a"]]
    assert [len(each.get("tags", [])) for each in states] == [0] * 7 + [1, 2, 3, 4, 5, 4, 5, 5]


def test_operations_are_refused_where_they_make_no_sense_or_the_schema_says_no(store: StateStore) -> None:
    schema = {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "maximum": 1},
            "names": {"type": "array", "maxItems": 2, "uniqueItems": True, "items": {"type": "string"}},
        },
    }
    (store.directory / "state_schema.json").write_text(json.dumps(schema))
    store.increment("count")
    assert store.add("names", "a")
    assert not store.add("names", "a")
    for wrong in (
        lambda: store.increment("count"),
        lambda: store.increment("names"),
        lambda: store.append("count", 1),
        lambda: store.append("names", 7),
        lambda: store.append("names", "a"),
        lambda: store.append("names", float("nan")),
    ):
        with pytest.raises(StateInvalid, match=r"state\.(count|names)"):
            wrong()
    store.append("names", "b")
    with pytest.raises(StateInvalid, match=r"more than 2 items"):
        store.add("names", "c")
    assert store.read() == {"count": 1, "names": ["a", "b"]}


def test_a_state_that_was_handed_on_can_be_read_and_not_changed(store: StateStore) -> None:
    with store._writing() as (database, _):
        database.move("0.1.0")
    assert store.read() == {"count": 0}
    with pytest.raises(StateMoved, match=r"0\.1\.0"):
        store.increment("count")
