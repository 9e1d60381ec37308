"""A group whose commands are imported when they are called, and not before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from ratchet.cli.catalogue import Branch, Leaf
from ratchet.cli.command import placed, shared_options, write_examples, write_options


class LazyGroup(click.Group):
    """A group made from a table of the catalogue."""

    def __init__(
        self, parts: Mapping[str, Leaf | Branch], *, examples: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(no_args_is_help=True, subcommand_metavar="COMMAND …", **kwargs)
        self.parts = parts
        self.examples = tuple(examples)
        self.shared = shared_options()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.parts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        part = self.parts.get(cmd_name)
        if part is None:
            return None
        if isinstance(part, Branch):
            return LazyGroup(part.parts, name=cmd_name, help=f"{part.help}\n\n{part.about}")
        return _loaded(part)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with placed(ctx):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *self.shared, help_option]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.parts and not ctx.resilient_parsing:
            raise click.UsageError(_unknown(args[0], list(self.parts)), ctx)
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(self.examples, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, part.help) for name, part in self.parts.items()])
        write_options(self, self.shared, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(f"`{ctx.command_path} COMMAND --help` says more about a command.")


def _loaded(part: Leaf) -> click.Command:
    found = getattr(import_module(part.module), part.target.partition(":")[2])
    if isinstance(found, click.Command):
        return found
    # Only an operation needs it.
    from ratchet.cli.operation import command_of

    return command_of(found)


def _unknown(name: str, known: list[str]) -> str:
    # Only a mistake needs it, and it is slow to import.
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.5)
    meant = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
    return f"there is no command {name!r}; {meant}"
