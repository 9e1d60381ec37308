"""How our commands differ from click's: they share options, show how they are used, and name their neighbours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from ratchet.cli.catalogue import Branch, Leaf
from ratchet.cli.session import CliSession

# Option name to the setting it stands for.
_SETTINGS = {
    "home": "home",
    "database_url": "database_url",
    "log_level": "log.level",
    "log_format": "log.format",
}


def shared_options() -> list[click.Parameter]:
    """Fresh options that write what they are given into the session."""
    return [
        _text(
            "--home",
            "DIRECTORY",
            "Where settings, ledger and artifacts are; $RATCHET_HOME, else the nearest .ratchet, if not given.",
        ),
        _text(
            "--database-url",
            "URL",
            "The ledger, sqlite:///FILE or postgresql://…; ledger.db in the home if not given.",
        ),
        _text("--log-level", "LEVEL", "debug, info, warning or error; info if not given."),
        _text("--log-format", "FORMAT", "How lines of the log look: text or json; text if not given."),
        _switch("--json", "Print JSON, also for errors."),
        _switch("--verbose", "Log everything, and show where an error came from.", "-v"),
    ]


def _text(name: str, metavar: str, help: str) -> click.Option:
    return click.Option([name], metavar=metavar, help=help, expose_value=False, callback=_keep_setting)


def _switch(name: str, help: str, *more: str) -> click.Option:
    return click.Option(
        [*more, name], is_flag=True, help=help, expose_value=False, is_eager=True, callback=_keep_switch
    )


def _keep_setting(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(CliSession).flags[_SETTINGS[option.name or ""]] = value


def _keep_switch(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        setattr(context.ensure_object(CliSession), option.name or "", True)


class Command(click.Command):
    """A command that also takes the shared options.

    `examples` are whole lines as they are typed, `see` the commands that a reader may want next, without the program's
    name: `@command(examples=["ratchet runs show 3"], see=["runs list"])`.
    """

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), see: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.see = tuple(see)
        self.shared = shared_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with placed(ctx):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *self.shared, help_option]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(self.examples, formatter)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_rows(
            "Arguments", [each for each in self.params if isinstance(each, click.Argument)], ctx, formatter
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, self.shared, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.see:
            formatter.write_paragraph()
            program = ctx.find_root().command_path
            formatter.write_text("See also: " + ", ".join(f"`{program} {each}`" for each in self.see))


def command(
    *args: Any, examples: Sequence[str] = (), see: Sequence[str] = (), **kwargs: Any
) -> Callable[[Callable[..., int | None]], Command]:
    """Like `click.command`. What the function returns is the exit code; nothing is 0.

    Where its first parameter is the `session`, it is given that.
    """
    made = click.command(*args, cls=Command, examples=examples, see=see, **kwargs)

    def make(function: Callable[..., int | None]) -> Command:
        takes_session = function.__code__.co_varnames[:1] == ("session",)
        return made(click.pass_obj(function) if takes_session else function)

    return make


@contextlib.contextmanager
def placed(ctx: click.Context) -> Iterator[None]:
    """Has a mistake in a line know which command it was made in; click's parser does not always tell."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        raise


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Each on a line of its own, never wrapped, so that it can be copied."""
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def write_options(
    command: click.Command,
    shared: list[click.Parameter],
    ctx: click.Context,
    formatter: click.HelpFormatter,
) -> None:
    """The command's own options first, then those that every command has."""
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
    _write_rows("Options", [each for each in options if each not in shared], ctx, formatter)
    _write_rows("Options of every command", shared, ctx, formatter)


def _write_rows(
    title: str, parameters: Sequence[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    rows = [row for each in parameters if (row := each.get_help_record(ctx)) is not None]
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


class LazyGroup(click.Group):
    """A group made from a table of the catalogue. Its commands are imported when they are called, and not before."""

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
