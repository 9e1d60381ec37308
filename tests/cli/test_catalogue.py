"""The catalogue tells the truth about the commands."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import click
import pytest

from ratchet.cli import run
from ratchet.cli.catalogue import CATALOGUE, Branch, Leaf
from ratchet.cli.group import LazyGroup


def leaves() -> list[tuple[list[str], Leaf]]:
    found: list[tuple[list[str], Leaf]] = []
    for name, part in CATALOGUE.items():
        if isinstance(part, Branch):
            found += [([name, inner], leaf) for inner, leaf in part.parts.items()]
        else:
            found.append(([name], part))
    return found


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
