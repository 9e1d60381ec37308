"""A state that lay in `state.json` and `state.history.jsonl` is taken over, once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ratchet.agentkit import StateDamaged, StateMissing, StateStore

FIRST: dict[str, Any] = {"count": 0, "notes": ["a"]}
LINES = [
    {"number": 1, "at": "2026-01-02T03:04:05+00:00", "by": "architect", "digest": "-", "state": FIRST},
    {
        "number": 2,
        "at": "2026-01-02T03:04:06+00:00",
        "by": "runner",
        "digest": "-",
        "since": 1,
        "weight": 30,
        "steps": [["set", ["count"], 1], ["splice", ["notes"], 1, 0, ["b"]]],
    },
    {
        "number": 3,
        "at": "2026-01-02T03:04:07+00:00",
        "by": None,
        "restored": 1,
        "digest": "-",
        "state": {"count": 0},
    },
]


def write(
    directory: Path, state: str | None, lines: list[dict[str, Any]] = LINES, end: str = "\n"
) -> StateStore:
    (directory / "state_schema.json").write_text('{"type": "object"}')
    if state is not None:
        (directory / "state.json").write_text(state)
    if lines:
        (directory / "state.history.jsonl").write_text("\n".join(map(json.dumps, lines)) + end)
    return StateStore(directory)


def test_it_is_taken_over_with_its_history(tmp_path: Path) -> None:
    store = write(tmp_path, '{"count": 0}')
    assert store.read() == {"count": 0}
    assert [(each.number, each.by, each.restored) for each in store.history()] == [
        (3, None, 1),
        (2, "runner", None),
        (1, "architect", None),
    ]
    assert store.history()[0].at.isoformat() == "2026-01-02T03:04:07+00:00"
    assert [store.at(number) for number in (1, 2, 3)] == [
        FIRST,
        {"count": 1, "notes": ["a", "b"]},
        {"count": 0},
    ]
    store.increment("count")
    (tmp_path / "state.json").write_text('{"count": 77}')
    assert store.read() == {"count": 1}


def test_a_file_that_was_changed_by_hand_is_the_newest_change(tmp_path: Path) -> None:
    store = write(tmp_path, '{"count": 7}')
    assert [(each.number, each.recovered) for each in store.history(limit=2)] == [(4, True), (3, False)]
    assert (store.at(3), store.at(4)) == ({"count": 0}, {"count": 7})


def test_a_state_without_a_history_begins_one(tmp_path: Path) -> None:
    store = write(tmp_path, '{"count": 7}', [])
    with store.edit() as state:
        state["count"] += 1
    assert [(each.number, each.recovered) for each in store.history()] == [(2, False), (1, True)]


def test_a_torn_history_is_taken_over_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    store = write(tmp_path, '{"count": 7}', end='\n{"number": 4, "at"')
    assert [each.number for each in store.history()] == [4, 3, 2, 1]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": NaN}', '{"a": 1e999}', '"\\ud800"', "[" * 100_000])
def test_a_damaged_file_is_told_and_not_taken_over(tmp_path: Path, content: str) -> None:
    store = write(tmp_path, content)
    with pytest.raises(StateDamaged, match="remove it"):
        store.read()
    (tmp_path / "state.json").unlink()
    assert store.read() == {"count": 0}


def test_nothing_is_no_state(tmp_path: Path) -> None:
    store = write(tmp_path, None, [])
    with pytest.raises(StateMissing):
        store.read()
    (tmp_path / "state.history.jsonl").write_text("no line\n")
    with pytest.raises(StateMissing):
        store.read()


TAKER = "import sys; from ratchet.agentkit import StateStore; StateStore(sys.argv[1]).read()"


@pytest.mark.soak
def test_killed_while_it_is_taken_over_it_is_taken_over_by_the_next(tmp_path: Path) -> None:
    many = [
        {**LINES[1], "number": number, "steps": [["set", ["count"], number]]} for number in range(2, 3000)
    ]
    store = write(tmp_path, '{"count": 2999, "notes": ["a"]}', [LINES[0], *many])
    for pause in (0.15, 0.2, 0.25, 0.3, 0.35, 0.4):
        taker = subprocess.Popen([sys.executable, "-c", TAKER, str(tmp_path)])
        time.sleep(pause)
        os.kill(taker.pid, signal.SIGKILL)
        taker.wait()
    assert [each.number for each in store.history(limit=5000)] == list(range(2999, 0, -1))
    assert [store.at(number)["count"] for number in (1, 2, 1500, 2999)] == [0, 2, 1500, 2999]
