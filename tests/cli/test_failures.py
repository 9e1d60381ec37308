from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import click
import pytest

from ratchet.cli.catalogue import CATALOGUE, Branch
from ratchet.cli.failures import tell
from ratchet.cli.session import CliSession
from ratchet.kernel import ConfigError, LedgerCorrupt, Missing, NotFound


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("run", 7), 1),
        (LedgerCorrupt("damaged"), 1),
        (ConfigError("wrong"), 2),
        (click.UsageError("wrong"), 2),
        (Missing("git is not installed"), 3),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
        (ValueError("unforeseen"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_each_kind_of_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert tell(error, CliSession()) == code


def test_an_error_is_told_with_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Missing("git is not installed", hint="install git"), CliSession())
    assert capsys.readouterr().err == "error: git is not installed\nhint: install git\n"


def test_a_program_is_told_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Missing("git is not installed", hint="install git"), CliSession(json=True))
    assert json.loads(capsys.readouterr().err) == {
        "error": "git is not installed",
        "kind": "Missing",
        "hint": "install git",
        "exit_code": 3,
    }


def test_an_unexpected_error_does_not_tell_a_password(capsys: pytest.CaptureFixture[str]) -> None:
    tell(ValueError("postgresql://me:hush@host/db is odd"), CliSession(verbose=True))
    assert "hush" not in capsys.readouterr().err


def commands(parts: Mapping[str, object], before: str = "") -> Iterator[str]:
    for name, each in parts.items():
        if isinstance(each, Branch):
            yield from commands(each.parts, f"{before}{name} ")
        else:
            yield before + name


@pytest.mark.parametrize(
    "entity", ["attempt", "call", "eval", "incident", "key", "project", "protocol", "secret", "step", "tool"]
)
def test_what_does_not_exist_is_told_with_a_command_that_lists_what_does(
    entity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(NotFound(entity, 7), CliSession())
    said = capsys.readouterr().err
    known = set(commands(CATALOGUE))
    [first, *_] = re.findall(r"`ratchet ([a-z -]+?)[ A-Z]*`", said.partition("hint: ")[2])
    assert first in known, said
