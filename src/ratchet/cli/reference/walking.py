"""Every command of the program, imported, as the reference and the manual tell of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from ratchet.cli.group import LazyGroup
from ratchet.kernel import Misuse


@dataclass(frozen=True, slots=True)
class Documented:
    """A command or a group, and its context, which knows the program's name."""

    command: click.Command
    context: click.Context

    @property
    def name(self) -> str:
        """As it is typed: `ratchet runs show`."""
        return self.context.command_path

    @property
    def group(self) -> LazyGroup | None:
        return self.command if isinstance(self.command, LazyGroup) else None

    @property
    def usage(self) -> str:
        return " ".join([self.name, *self.command.collect_usage_pieces(self.context)])

    @property
    def paragraphs(self) -> list[str]:
        """What it says of itself, the summary first, each paragraph on one line."""
        text = inspect.cleandoc(self.command.help or "")
        return [" ".join(each.split()) for each in text.split("\n\n") if each.strip()]

    @property
    def summary(self) -> str:
        return self.paragraphs[0]

    @property
    def examples(self) -> tuple[str, ...]:
        examples: tuple[str, ...] = getattr(self.command, "examples", ())
        return examples

    @property
    def see(self) -> tuple[str, ...]:
        """Neighbours by their whole names."""
        program = self.context.find_root().command_path
        return tuple(f"{program} {each}" for each in getattr(self.command, "see", ()))

    @property
    def arguments(self) -> list[tuple[str, str]]:
        return self._rows([each for each in self.command.params if isinstance(each, click.Argument)])

    @property
    def options(self) -> list[tuple[str, str]]:
        """Those that are its own; every command has the shared ones."""
        return self._rows([each for each in self.command.params if isinstance(each, click.Option)])

    @property
    def shared(self) -> list[tuple[str, str]]:
        shared: Sequence[click.Parameter] = getattr(self.command, "shared", ())
        return self._rows([*shared, *filter(None, [self.command.get_help_option(self.context)])])

    def _rows(self, parameters: Sequence[click.Parameter]) -> list[tuple[str, str]]:
        return [row for each in parameters if (row := each.get_help_record(self.context)) is not None]


def every_command(root: click.Group) -> Iterator[Documented]:
    """The program itself, then everything in it, in the order of the catalogue; a group before its commands."""
    yield from _within(_program(root))


def find_command(root: click.Group, words: Sequence[str]) -> Documented:
    """The command that `words` name, the program itself if there are none. Raises `Misuse`."""
    found = _program(root)
    for word in words:
        inner = None if found.group is None else _inner(found, word)
        if inner is None:
            raise Misuse(
                f"there is no command {' '.join(words)!r}", hint=f"`{found.name} --help` lists what there is"
            )
        found = inner
    return found


def _program(root: click.Group) -> Documented:
    return Documented(root, click.Context(root, info_name=root.name, **root.context_settings))


def _within(outer: Documented) -> Iterator[Documented]:
    yield outer
    if outer.group is not None:
        for name in outer.group.list_commands(outer.context):
            inner = _inner(outer, name)
            if inner is not None:
                yield from _within(inner)


def _inner(outer: Documented, name: str) -> Documented | None:
    assert outer.group is not None
    command = outer.group.get_command(outer.context, name)
    if command is None:
        return None
    return Documented(command, click.Context(command, info_name=name, parent=outer.context))
