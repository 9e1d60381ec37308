"""The catalogue tells the truth about the commands."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout

import click
import pytest

from ratchet.cli import run
from ratchet.cli.catalogue import CATALOGUE, Branch, Leaf
from ratchet.cli.command import LazyGroup


def leaves() -> list[tuple[list[str], Leaf]]:
    def below(parts: Mapping[str, Leaf | Branch], *path: str) -> Iterator[tuple[list[str], Leaf]]:
        for name, part in parts.items():
            if isinstance(part, Branch):
                yield from below(part.parts, *path, name)
            else:
                yield [*path, name], part

    return list(below(CATALOGUE))


@pytest.mark.parametrize(
    ("path", "leaf"), leaves(), ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_command_says_of_itself_what_the_catalogue_says(path: list[str], leaf: Leaf) -> None:
    group = LazyGroup({path[-1]: leaf}, name="test")
    command = group.get_command(click.Context(group), path[-1])
    assert command is not None
    assert command.name == path[-1]
    assert (command.help or "").splitlines()[0] == leaf.help


@pytest.mark.parametrize("path", [path for path, _ in leaves()], ids=" ".join)
def test_every_command_has_help_and_takes_the_shared_options(path: list[str]) -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        code = run([*path, "--help"])
    assert code == 0
    assert out.getvalue().startswith(f"Usage: ratchet {' '.join(path)} ")
    for option in ("--home", "--database-url", "--json", "--log-level", "--log-format", "--verbose"):
        assert option in out.getvalue()
