"""Scripts in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import ConfigError
from ratchet.modelserver import ScriptedCall, Tokens, Turn, read_script

TOML = """
name = "edit"

[[turns]]
calls = [{ name = "exec_command", arguments = { cmd = "echo hi > f.txt" } }]
usage = false

[[turns]]
text = "done"
pace_seconds = 1
repeat = "always"
[turns.usage]
input = 7
"""


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    (tmp_path / "edit.json").write_text(
        '{"turns": [{"calls": [{"name": "exec_command", "arguments": {"cmd": "echo hi > f.txt"}}], "usage": null},'
        ' {"text": "done", "pace_seconds": 1, "repeat": "always", "usage": {"input": 7}}]}'
    )
    script = read_script(tmp_path / "a.toml")
    assert script == read_script(tmp_path / "edit.json")
    assert script.name == "edit"
    assert script.turns == (
        Turn(calls=(ScriptedCall("exec_command", {"cmd": "echo hi > f.txt"}),), usage=None),
        Turn(text="done", pace_seconds=1, repeat="always", usage=Tokens(input=7)),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '[[turns]]\ntext = "a"\n[[turns]]\ntexxt = "b"',
            r"s.toml:4: turn 2: texxt is unknown; there are: text, ",
        ),
        ("[[turns]]\ncalls = [{ nme = 'x' }]", r"s.toml:2: turn 1: calls.nme is unknown; there are: name, "),
        (
            "[[turns]]\nusage = { inputs = 1 }",
            r"s.toml:2: turn 1: usage.inputs is unknown; there are: input, ",
        ),
        ('[[turns]]\n\nstatus = "429"', r"s.toml:3: turn 1: status is '429'; it must be a valid integer"),
        ("[[turns]]\nstatus = 99", r"s.toml:2: turn 1: status 99 is not an HTTP status"),
        ("[[turns]]\ncalls = [{ arguments = {} }]", r"s.toml:2: turn 1: calls.name is missing"),
        ("[[turns]]\ntext = 2020-01-01", r"turn 1: a date or a time is no value"),
        ("[[turns]]\ndelay_seconds = nan", r"s.toml:2: turn 1: delay_seconds nan"),
        ("turns = [5]", r"turn 1: 5 is not a table"),
        ("[[turns]", r"s.toml is not TOML: .* line 1"),
        ("turns = []\nport = 1", r"'port' is unknown; a script has name and turns"),
        ("name = 'x'", r"has no list of turns"),
        ("name = 'A b'\nturns = []", r"'A b' cannot name a script"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_script(tmp_path / "s.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lost\.toml cannot be read: No such file"):
        read_script(tmp_path / "lost.toml")
