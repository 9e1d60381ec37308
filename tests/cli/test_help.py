"""Every command explains itself: what it does, what it takes, and how it is used."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from ratchet.cli.command import Command
from ratchet.cli.program import root
from ratchet.cli.reference.manual import Documented, every_command
from ratchet.cli.session import CliSession
from tests.cli.conftest import Ratchet

# The line may read another program's output, set a variable, name the program to another, or pass on what it prints.
_TYPED = re.compile(r"(?:^|[|(] ?|^[A-Z_]+=\S+ | -- )(ratchet .*?)(?=\)| \| | > |$)")


def commands() -> list[Documented]:
    return [each for each in every_command(root) if each.group is None]


def typed(line: str) -> list[str]:
    """The words of the line that are for `ratchet`, without its name."""
    found = _TYPED.search(line)
    assert found is not None, line
    return shlex.split(found[1])[1:]


def test_every_command_and_every_group_says_in_a_line_what_it_is_for_and_then_more() -> None:
    for each in every_command(root):
        assert each.summary.endswith("."), each.name
        assert len(each.summary) <= 100, each.name
    for each in every_command(root):
        if each.group is not None:
            assert len(each.paragraphs) > 1, each.name


def test_every_argument_and_every_option_is_explained() -> None:
    for each in commands():
        for name, text in [*each.arguments, *each.options, *each.shared]:
            assert len(text) > 5, (each.name, name)


def test_an_option_with_a_default_shows_it() -> None:
    silent = [
        (each.name, option.opts)
        for each in commands()
        for option in each.command.params
        if isinstance(option, click.Option)
        and not option.is_flag
        and option.default not in (None, "", (), Path())
        and "UNSET" not in repr(option.default)
        and not option.show_default
    ]
    assert silent == []


def test_every_example_is_a_line_that_its_command_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for each in commands():
        assert 1 <= len(each.examples) <= 5, each.name
        for words in map(typed, each.examples):
            _have_files(tmp_path, words)
            path = each.name.split()[1:]
            if path[0] not in words:  # `ledger backup` is `backup`, too
                path = path[1:]
                assert root.get_command(click.Context(root), path[0]) is each.command
            start = words.index(path[0])
            root.make_context("ratchet", words[: start + 1], obj=CliSession())
            assert words[start : start + len(path)] == path, words
            rest = words[start + len(path) :]
            assert each.command.make_context(each.name, rest, obj=CliSession()).args == [], words


def test_the_neighbours_that_a_command_names_exist() -> None:
    known = {each.name for each in every_command(root)}
    for each in commands():
        assert known.issuperset(each.see), each.name
        assert each.name not in each.see


def test_commands_that_help_names_exist() -> None:
    """Also in the middle of a sentence: `ratchet runs show 3`, `ratchet worker`."""
    known = {each.name for each in every_command(root)}
    groups = {each.name for each in every_command(root) if each.group is not None}
    for each in every_command(root):
        for named in re.findall(r"`(ratchet [a-z][^`]*)`", " ".join(each.paragraphs)):
            words = re.findall(r"^ratchet [a-z-]+(?: [a-z-]+)?", named)[0].split()
            name = " ".join(words) if " ".join(words[:2]) in groups else " ".join(words[:2])
            assert name in known, (each.name, named)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_example_is_printed_as_it_is_typed_however_long(ratchet: Ratchet) -> None:
    shown = ratchet("workflow", "schedule", "--help").out
    command = next(each.command for each in commands() if each.name == "ratchet workflow schedule")
    assert isinstance(command, Command)
    longest = max(command.examples, key=len)
    assert len(longest) > 100
    assert f"\nExamples:\n  {command.examples[0]}\n" in shown
    assert f"  {longest}\n" in shown
    assert shown.rstrip().endswith("See also: `ratchet schedule list`, `ratchet schedule next`")


def _have_files(directory: Path, words: list[str]) -> None:
    """Some parameters want a file that is there."""
    for word in words:
        if re.fullmatch(r"[\w-]+(\.\w+)+", word) and not (directory / word).exists():
            (directory / word).touch()
