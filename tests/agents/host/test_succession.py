"""Bringing over what an old version changes after a new one has begun."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.contract import CUT
from ratchet.agents.state import Carried, Succession, read_cut
from ratchet.config.workflow_settings import Agents

OLD, NEW = "a" * 40, "b" * 40
ANY = {"type": "object"}


def version(root: Path, commit: str, state: dict[str, Any], schema: dict[str, Any] | None = None) -> Path:
    directory = root / commit
    directory.mkdir()
    (directory / "state_schema.json").write_text(json.dumps(schema or ANY))
    StateStore(directory).begin(state, by="test")
    return directory


def cut(directory: Path, state: dict[str, Any], old: str = OLD) -> None:
    (directory / CUT).write_text(json.dumps({"from": old, "state": state}))


@pytest.fixture
def settings() -> Agents:
    return Agents()


def carry(succession: Succession) -> Carried:
    return asyncio.run(succession.carry())


@pytest.mark.soak
def test_changes_since_the_cut_are_merged_once_and_the_cut_moves(tmp_path: Path, settings: Agents) -> None:
    old = version(tmp_path, OLD, {"seen": 3, "list": [1, 2]})
    new = version(tmp_path, NEW, {"seen": 1, "list": [1], "own": True})
    cut(new, {"seen": 1, "list": [1]})
    succession = Succession(old, new, settings)
    assert carry(succession) == Carried(changed=True)
    assert StateStore(new).read() == {"seen": 3, "list": [1, 2], "own": True}
    assert carry(succession) == Carried()
    with StateStore(old).edit() as state:
        state["list"].append(3)
    assert carry(succession) == Carried(changed=True)
    assert StateStore(new).read()["list"] == [1, 2, 3]


def test_a_host_that_died_before_it_could_move_the_cut_adds_nothing_twice(
    tmp_path: Path, settings: Agents
) -> None:
    old = version(tmp_path, OLD, {"list": [1, 2]})
    new = version(tmp_path, NEW, {"list": [1]})
    cut(new, {"list": [1]})
    succession = Succession(old, new, settings)
    carry(succession)
    with StateStore(new).edit() as state:
        state["list"].append(9)
    cut(new, {"list": [1]})
    carry(succession)
    assert StateStore(new).read() == {"list": [1, 2, 9]}


@pytest.mark.parametrize("cut_from", [None, "c" * 40])
def test_a_version_that_did_not_begin_with_that_state_keeps_its_own(
    tmp_path: Path, settings: Agents, cut_from: str | None
) -> None:
    old, new = version(tmp_path, OLD, {"a": 1}), version(tmp_path, NEW, {"b": 1})
    if cut_from is not None:
        cut(new, {}, old=cut_from)
    assert carry(Succession(old, new, settings)) == Carried()
    assert StateStore(new).read() == {"b": 1}


def test_once_settled_nothing_is_owed(tmp_path: Path, settings: Agents) -> None:
    old, new = version(tmp_path, OLD, {"a": 1}), version(tmp_path, NEW, {})
    cut(new, {})
    succession = Succession(old, new, settings)
    succession.settle()
    assert read_cut(new) is None
    assert carry(succession) == Carried()


def test_what_the_schema_of_the_new_version_refuses_is_left_out_with_the_reason(
    tmp_path: Path, settings: Agents
) -> None:
    old = version(tmp_path, OLD, {"count": "many"})
    strict = {"type": "object", "properties": {"count": {"type": "integer"}}}
    new = version(tmp_path, NEW, {"count": 1}, strict)
    cut(new, {"count": 1})
    carried = carry(Succession(old, new, settings))
    assert not carried.changed
    assert "count" in (carried.problem or "")
    assert StateStore(new).read() == {"count": 1}


def test_the_new_version_migrates_what_the_old_one_changes(tmp_path: Path, settings: Agents) -> None:
    old = version(tmp_path, OLD, {"count": 2})
    new = version(tmp_path, NEW, {"total": 1})
    (new / "migrate.py").write_text("def migrate(state):\n    return {'total': state['count']}\n")
    cut(new, {"count": 1})
    assert carry(Succession(old, new, settings)) == Carried(changed=True)
    assert StateStore(new).read() == {"total": 2}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        '{"from": "../../etc", "state": {}}',
        '{"from": "abcdef1", "state": 1}',
        "[" * 100_000,
    ],
)
def test_a_cut_that_an_agent_wrote_itself_is_no_cut(tmp_path: Path, content: str) -> None:
    (tmp_path / CUT).write_text(content)
    assert read_cut(tmp_path) is None


def test_a_cut_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(json.dumps({"from": OLD, "state": {"secret": 1}}))
    (tmp_path / CUT).symlink_to(tmp_path / "secret")
    assert read_cut(tmp_path) is None
