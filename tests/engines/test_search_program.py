"""What the search engine finds in a program, and what it changes there."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import Engine, EventKind, Request, SessionEvent
from ratchet.engines.search import BadDeclaration, SearchEngine
from ratchet.engines.search.program import find_constants
from ratchet.kernel import Misuse
from tests.engines.conftest import Place
from tests.engines.search_subject import ask, program, values


@pytest.fixture
def engine() -> Engine:
    return SearchEngine()


def test_every_declared_constant_stays_within_its_declaration(engine: Engine, tmp_path: Path) -> None:
    path = program(tmp_path)
    for trial in range(40):
        session = ask(engine, tmp_path, trial=trial)
        found = values(path)
        assert 0.001 <= found["RATE"] <= 1.0
        assert found["DEPTH"] in range(1, 9)
        assert found["KERNEL"] in ("rbf", "linear", "poly")
        assert -5 <= found["OFFSET"] <= 5
        assert found["OTHER"] == 17
        assert session.data["values"]["model.py:DEPTH"] == str(found["DEPTH"])


def test_the_session_says_what_it_changed(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path)
    heard: list[SessionEvent] = []
    session = asyncio.run(engine.propose(Request("", workspace=tmp_path, listen=heard.append)))
    assert [each.kind for each in heard] == [
        EventKind.STARTED,
        EventKind.FILE_CHANGE,
        EventKind.MESSAGE,
        EventKind.USAGE,
    ]
    assert heard[1].text == "model.py"
    assert session.text.startswith("RATE = ")
    assert (session.engine, session.usage.tokens, session.simulated) == ("search", 0, False)
    assert session.usage.wall_ms > 0
    assert len(session.transcript.splitlines()) == 4


@pytest.mark.parametrize(
    "content",
    [
        b"A = @  # search: 1..9\r\nB = 'x'\t # keep\r\n\r\n",
        b"\xef\xbb\xbfA = @  # search: 1..9\n\xc3\xa9 = 2  \n",
        b"# -*- coding: latin-1 -*-\nname = '\xe9\xff'; A = @  # search: 1..9",
        b"class C:\n\tA: int = @# search:1..9\n\t\n\x0c\n",
        b'text = """\nA = 1  # search: 5..6\n"""\nA = @  # search: 1..9\n',
        b"A = (\n    @  # search: 1..9\n)\n",
        b"f(x, depth=@)  # search: 1..9\n",
        b'config = {\n  "depth": @,   # search: 1..9\n}\n',
        "π = 'é'; self.naïve = @  # search: 1..9\n".encode(),
        b"A = @  # search: 1..9\rB = 2\r",
    ],
)
def test_nothing_but_the_literal_changes(engine: Engine, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.py"
    path.write_bytes(content.replace(b"@", b"1"))
    [new] = ask(engine, tmp_path).data["values"].values()
    assert new != "1"
    assert path.read_bytes() == content.replace(b"@", new.encode())


def test_a_literal_that_keeps_its_value_keeps_its_spelling(engine: Engine, tmp_path: Path) -> None:
    for trial in range(8):
        path = program(tmp_path, "A = 0x01  # search: 1..2\nB = 1  # search: 1..99\n")
        new = ask(engine, tmp_path, trial=trial).data["values"]["model.py:A"]
        assert path.read_text().startswith("A = 0x01  #" if new == "1" else "A = 2  #")


@pytest.mark.parametrize(
    ("line", "present"),
    [
        ("x = -3  # search: -5..5", -3),
        ("x = y - 3  # search: 1..5", 3),
        ("x = f(-3)  # search: -5..5", -3),
        ("return -3  # search: -5..5", -3),
        ("x = a[-3]  # search: -5..-1", -3),
        ("x = 1.5 if y else -3  # search: -5 | -3", -3),
        ("x = a[0] - 3.0  # search: 1.0 | 3.0", 3.0),
        ("x = 1_000  # search: 1..2_000", 1000),
        ("x = 0x10  # search: 1..20", 16),
        ("x = 1e-3  # search: 1e-5..1e-1 log", 0.001),
        ("x = .5  # search: 0..1", 0.5),
        ("x = True  # search: True | False", True),
        ("x = None  # search: None | 3 | 'auto'", None),
        ("d['key'] = 'b'  # search: 'a' | 'b'", "b"),
        ("x = 'a..b'  # search: 'a..b' | 'c'", "a..b"),
        ("x = 1  # search: 1 | 2 | 4", 1),
        ("x = -1  # search: -1 | 1", -1),
    ],
)
def test_a_literal_is_read_with_its_sign(line: str, present: Any) -> None:
    text = f"def function():\n    {line}\n"
    [constant] = find_constants("m.py", text)
    assert (type(constant.present), constant.present) == (type(present), present)
    assert ast.literal_eval(text[constant.start : constant.end]) == present


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("x = 1; y = 2  # search: 1..8", "more than one number"),
        ("x = 2 ** 3  # search: 1..8", "more than one number"),
        ("x = f('a', 'b')  # search: 'a' | 'b'", "more than one literal"),
        ("# search: 1..8", "no number in this line"),
        ("x = 'text'  # search: 1..8", "no number in this line"),
        ("x = 'z'  # search: 'a' | 'b'", "no literal that is one of the choices"),
        ("x = 9  # search: 1..8", "9 lies outside of 1..8"),
        ("x = 3  # search: 8..1", "is empty"),
        ("x = 3  # search: 3..3", "is empty"),
        ("x = 3  # search: 0..8 log", "above 0"),
        ("x = 3  # search: 1..8 linear", "neither a range|'linear'|is not a number"),
        ("x = 3  # search: 1..many", "'many' is not a number"),
        ("x = 3  # search: 1..inf", "finite|not a number"),
        ("x = 3  # search: 1.5..8", "whole number"),
        ("x = 3  # search: 1-8", "neither a range nor a choice|something other"),
        ("x = 3  # search:", "neither a range nor a choice"),
        ("x = 3  # search: the best value", "neither a range nor a choice"),
        ("x = 3  # search: 3", "offers 1"),
        ("x = 3  # search: 3 | 3", "twice"),
        ("x = 3  # search: [3] | [4]", "something other"),
        ("x = 3  # search: f(1) | 3", "neither a range nor a choice"),
        ("x = True  # search: 0..8", "no number in this line"),
        ("x = f'{3}'  # search: 'a' | 'b'", "no literal"),
        ("x = (3  # search: 1..8", "not Python"),
    ],
)
def test_a_bad_declaration_is_told_with_its_place(
    engine: Engine, tmp_path: Path, line: str, says: str
) -> None:
    program(tmp_path, f"import math\n\n{line}\n", "deep/model.py")
    with pytest.raises(BadDeclaration, match=says) as raised:
        ask(engine, tmp_path)
    assert str(raised.value).startswith("deep/model.py:")
    assert raised.value.path == "deep/model.py"
    assert raised.value.line == 3 or "not Python" in says
    assert raised.value.hint


def test_several_files_are_one_space(engine: Engine, tmp_path: Path) -> None:
    one = program(tmp_path, "A = 1  # search: 1..99\n", "one.py")
    two = program(tmp_path, "A = 1  # search: 1..99\n", "pack/two.py")
    session = ask(engine, tmp_path)
    assert session.data["values"].keys() == {"one.py:A", "pack/two.py:A"}
    assert (values(one)["A"], values(two)["A"]) != (1, 1)
    only = ask(engine, tmp_path, files=["pack/*.py"])
    assert only.data["values"].keys() == {"pack/two.py:A"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("RATE = 1  # search: 1..9", "RATE"),
        ("rate: int = 1  # search: 1..9", "rate"),
        ("self.rate = 1  # search: 1..9", "self.rate"),
        ("d['rate'] = 1  # search: 1..9", "d['rate']"),
        ("f(x, rate=1)  # search: 1..9", "rate"),
        ('"rate": 1,  # search: 1..9', '"rate"'),
        ("x = y + 1  # search: 1..9", "x = y +"),
        ("1,  # search: 1..9", "value"),
    ],
)
def test_a_constant_is_called_what_it_is_assigned_to(line: str, name: str) -> None:
    [constant] = find_constants("m.py", f"{{\n{line}\n}}")
    assert constant.name == name


def test_constants_of_one_name_are_told_apart(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path, "def f():\n    a = 1  # search: 1..9\n\ndef g():\n    a = 1  # search: 1..9\n")
    assert ask(engine, tmp_path).data["values"].keys() == {"model.py:a", "model.py:a (2)"}


def test_what_lies_outside_or_is_hidden_is_not_touched(engine: Engine, tmp_path: Path) -> None:
    outside = program(tmp_path, "A = 1  # search: 1..9\n", "outside/model.py")
    workspace = tmp_path / "workspace"
    program(workspace, "A = 1  # search: 1..9\n")
    hidden = program(workspace, "A = 1  # search: 1..9\n", ".git/hooks/model.py")
    (workspace / "link.py").symlink_to(outside)
    (workspace / "linked").symlink_to(outside.parent)
    assert ask(engine, workspace).data["values"].keys() == {"model.py:A"}
    assert values(outside)["A"] == values(hidden)["A"] == 1


def test_the_mode_of_a_file_stays(engine: Engine, tmp_path: Path) -> None:
    path = program(tmp_path)
    path.chmod(0o755)
    ask(engine, tmp_path)
    assert path.stat().st_mode & 0o777 == 0o755


def test_undeclared_numbers_are_taken_only_when_asked(place: Place, tmp_path: Path) -> None:
    taken = "A = 10\nB: float = 0.5\nC = -4.0\nK = 2  # search: 1..3\n"
    text = taken + "D = 'x'\nE, F = 1, 2\nG = H = 3\nI = 1 + 1\nJ = True\n"
    program(tmp_path, text)
    assert ask(place.open("search"), tmp_path).data["values"].keys() == {"model.py:K"}
    every = place.open("search:all")
    for trial in range(30):
        found = {
            name.removeprefix("model.py:"): ast.literal_eval(text)
            for name, text in ask(every, tmp_path, trial=trial).data["values"].items()
        }
        program(tmp_path, text)
        assert found.keys() == {"A", "B", "C", "K"}
        assert found["A"] in range(1, 41)
        assert 0.05 <= found["B"] <= 5
        assert -40 <= found["C"] <= -0.4
        assert found["K"] in (1, 2, 3)


def test_nothing_declared_is_misuse(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path, "A = 1\n")
    with pytest.raises(Misuse, match="nothing to search") as raised:
        ask(engine, tmp_path)
    assert "search:all" in str(raised.value.hint)


def test_too_many_constants_are_misuse(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path, "".join(f"A{n} = 1  # search: 1..9\n" for n in range(101)))
    with pytest.raises(Misuse, match="101 constants"):
        ask(engine, tmp_path)


def test_a_file_that_cannot_be_read_is_told(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_bytes(b"A = 1  # search: 1..9 \xff\n")
    with pytest.raises(BadDeclaration, match="cannot be read as text"):
        ask(engine, tmp_path)


def test_an_enormous_file_is_told(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path, "#" * 4_000_001)
    with pytest.raises(BadDeclaration, match="larger than"):
        ask(engine, tmp_path)


def test_a_name_that_is_bound_again_is_no_constant(place: Place, tmp_path: Path) -> None:
    text = """
RATE = 0.5
count = 0
shared = 3


def climb(steps):
    global shared
    best = 1e9
    width = 4
    for step in range(steps):
        best = min(best, step * width)
    count = 7
    count += 1
    return best


class Model:
    depth = 2
"""
    program(tmp_path, text)
    found = ask(place.open("search:all"), tmp_path).data["values"].keys()
    assert {name.removeprefix("model.py:") for name in found} == {"RATE", "count", "width", "depth"}
