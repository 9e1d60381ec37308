"""The attack suite: it passes on this machine, and fails where layers are off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.cli.commands.doctor import print_attacks
from ratchet.doctor import hostile
from ratchet.doctor.attack import ATTACKS, Attack, AttackResult, attack_here
from tests.cli.program import Program
from tests.sandbox.places import (
    ordinary_user,
    ordinary_user_without_namespaces,
    python_as,
    root_without_rights,
    without_filters,
    without_namespaces,
    without_user_namespaces,
)

WITH_LESS = """
import asyncio, json
from dataclasses import asdict
from ratchet.doctor.attack import ATTACKS, attack_here
chosen = [each for each in ATTACKS if each.function in {functions!r}]
print(json.dumps([asdict(each) for each in asyncio.run(attack_here(chosen, floor={floor}))]))
"""


def attacked(functions: set[str], floor: str) -> list[AttackResult]:
    """What becomes of some attacks where no namespace can be made."""
    found = python_as(without_namespaces, WITH_LESS.format(functions=functions, floor=floor))
    return [AttackResult(**each) for each in found]


def test_every_attack_on_this_machine_is_stopped_and_says_by_what(tmp_path: Path) -> None:
    program = Program(tmp_path)
    done = program("doctor", "--attack", "--json")
    assert done.code == 0, [each for each in done.json["attacks"] if each["held"] is False]
    assert done.json["ok"] is True
    rows = [AttackResult(**each) for each in done.json["attacks"]]
    assert len(rows) == sum(len(each.ways) for each in ATTACKS) > 75
    assert [each for each in rows if not each.happened] == []
    assert [each for each in rows if not each.stopped_by and each.held is not None] == []
    # Only what reads a file of the user's home finds none where there is no such file.
    assert {each.attack for each in rows if each.held is None} <= {"read a file of the user's home"}


def test_an_attack_on_a_file_that_is_not_there_could_not_be_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    chosen = [each for each in ATTACKS if each.name == "read a file of the user's home"]
    rows = asyncio.run(attack_here(chosen))
    assert [(each.held, each.stopped_by) for each in rows] == [(None, "")] * 3
    assert rows[0].happened == f"could not be tried: there is no file in {tmp_path}"
    print_attacks(rows, 0)
    shown = capsys.readouterr().out.splitlines()
    assert "not tried" in shown[1]
    assert shown[-1] == "3 attacks, 0 stopped, 0 got through, 3 could not be tried"
    (tmp_path / ".login").write_text("secret")
    assert [each.held for each in asyncio.run(attack_here(chosen))] == [True] * 3


def test_an_attack_gets_through_where_its_layer_is_off() -> None:
    rows = attacked({"touch_foreign", "read_file"}, "frozenset()")
    through = {(each.attack, each.runs_as) for each in rows if each.held is False}
    assert ("read a file of the user", "agent") in through
    assert ("change mode, times or owner of a foreign file", "agent") in through
    assert not any(way == "node" for _, way in through)


def test_what_is_refused_for_want_of_a_layer_says_so() -> None:
    rows = attacked({"tcp"}, "None")
    assert [(each.runs_as, each.held) for each in rows] == [("node", True), ("command", True)]
    assert rows[0].stopped_by == "seccomp filter"
    assert "missing" in rows[1].happened
    assert "pid namespace" in rows[1].stopped_by


def test_an_attack_that_fails_by_itself_has_not_been_stopped() -> None:
    (row,) = asyncio.run(attack_here([Attack("nonsense", ("command",), "refused", "absent_function")]))
    assert not row.held
    assert "absent_function" in row.happened


def test_people_see_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        AttackResult("send a packet", "node", "refused", "PermissionError", "seccomp filter", True),
        AttackResult("trace a process", "command", "refused", "it got True", "", False),
    ]
    print_attacks(rows, 1)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["attack", "as", "held", "expected", "happened", "stopped", "by"]
    assert "NO" in shown[2]
    assert shown[-1] == "2 attacks, 1 stopped, 1 got through"


@pytest.mark.soak
@pytest.mark.parametrize(
    "place",
    [
        ordinary_user,
        ordinary_user_without_namespaces,
        without_namespaces,
        without_user_namespaces,
        root_without_rights,
    ],
)
def test_no_attack_gets_through_as_anybody_and_wherever(place: Callable[[], None]) -> None:
    """What needs a layer that is not there is refused, and all else is stopped."""
    everything = {each.function for each in ATTACKS}
    found = python_as(place, WITH_LESS.format(functions=everything, floor=None))
    assert [each for each in found if each["held"] is False] == []
    assert sum("missing" not in each["happened"] for each in found) > 20


@pytest.mark.soak
def test_the_command_fails_where_an_attack_gets_through() -> None:
    """Without a filter commands run all the same, and nothing keeps them from taking leases."""
    program = """
import contextlib, io, json
from ratchet.cli import run
said = io.StringIO()
with contextlib.redirect_stdout(said):
    code = run(["doctor", "--attack", "--json"])
rows = json.loads(said.getvalue())["attacks"]
print(json.dumps([code, [[each["attack"], each["runs_as"]] for each in rows if each["held"] is False]]))
"""
    code, through = python_as(without_filters, program)
    assert code == 1
    assert ["take a lease on its own file", "command"] in through


@pytest.mark.parametrize("attack", ATTACKS, ids=[each.name for each in ATTACKS])
def test_every_attack_names_hostile_code_that_there_is(attack: Attack) -> None:
    assert callable(getattr(hostile, attack.function))
    assert json.dumps(attack.expected)
