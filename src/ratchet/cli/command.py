"""How our commands differ from click's: they share options, and their help keeps those apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ratchet.cli.options import shared_options


class Command(click.Command):
    """A command that also takes the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shared = shared_options()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *self.shared, help_option]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, self.shared, ctx, formatter)


def command(*args: Any, **kwargs: Any) -> Callable[[Callable[..., int | None]], Command]:
    """Like `click.command`. What the function returns is the exit code; nothing is 0."""
    return click.command(*args, cls=Command, **kwargs)


def write_options(
    command: click.Command,
    shared: list[click.Parameter],
    ctx: click.Context,
    formatter: click.HelpFormatter,
) -> None:
    """The command's own options first, then those that every command has."""
    everything = command.get_params(ctx)
    own = [each for each in everything if each not in shared]
    for title, options in (("Options", own), ("Options of every command", shared)):
        rows = [row for each in options if (row := each.get_help_record(ctx)) is not None]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
