"""Commands that pages only show, since they need an agent, a key or a server, are ones that the program has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ratchet.cli.catalogue import CATALOGUE
from ratchet.cli.command import LazyGroup
from tests.docs.markdown import blocks, name, pages

# Indented by four: how the README shows what it does not tell to type.
_INDENTED = re.compile(r"^ {4}(ratchet .+)$", re.M)
_SHOWN = [page for page in pages() if "reference" not in page.parts]


def shown_commands(text: str) -> Iterator[str]:
    for block in blocks(text):
        if block.language in ("bash", "sh", "console"):
            yield from re.findall(r"^(?:\w+=\S+ )*(ratchet .+?)(?: *[&|>].*)?$", _joined(block.text), re.M)
    yield from _INDENTED.findall(text)


def _joined(text: str) -> str:
    return text.replace("\\\n", " ")


@pytest.mark.parametrize("page", _SHOWN, ids=name)
def test_every_command_that_the_page_shows_is_understood(page: Path) -> None:
    for line in shown_commands(page.read_text()):
        words = shlex.split(line.partition(" [")[0], comments=True)
        understand(words[1:], line)


def test_a_command_that_there_is_not_is_noticed() -> None:
    with pytest.raises(AssertionError, match="ratchet runs lsit"):
        understand(["runs", "lsit"], "ratchet runs lsit")
    with pytest.raises(click.UsageError, match="--hour"):
        understand(["research", "run", "x", "--hour", "3"], "ratchet research run x --hour 3")


def understand(words: list[str], line: str) -> None:
    """Take the words apart as the program would. Raises where it would."""
    command: click.Command = LazyGroup(CATALOGUE, name="ratchet")
    context = click.Context(command, info_name="ratchet")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no such command: {line}"
        command, context, words = found, click.Context(found, context, info_name=words[0]), words[1:]
    command.make_parser(context).parse_args(list(words))
