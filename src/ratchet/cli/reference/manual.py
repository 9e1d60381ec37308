"""Manual pages, in the language that `man` reads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import click

from ratchet import __version__
from ratchet.cli.command import LazyGroup
from ratchet.cli.program import root
from ratchet.cli.reference.schema_words import GENERATED, anchor, block, code, page, prose, table
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


EXIT_CODES = (
    ("0", "It is done."),
    ("1", "It failed, or what was asked for is blocked, waiting or not found."),
    ("2", "Misuse: an unknown command, a wrong value, wrong settings, no ledger."),
    ("3", "Something that is needed is missing: an engine, a program, a package."),
    ("130", "It was interrupted by Ctrl-C."),
    ("141", "The reader of the output had enough, as `head` does."),
)
_EXITS = "Exit codes are [those of every command](#exit-codes)."


def commands_page() -> str:
    program, *rest = every_command(root)
    return page([*_opening(program), *_contents(rest), *(part for each in rest for part in _section(each))])


def _opening(program: Documented) -> Iterator[str]:
    yield "# Commands"
    yield GENERATED
    yield from map(prose, program.paragraphs)
    yield "The same is printed by `ratchet COMMAND --help`, and as a manual page by `ratchet man COMMAND`."
    yield block([program.usage], "text")
    yield "## Options of every command"
    yield "They may stand before or after the name of a command."
    yield _rows("option", [*program.options, *program.shared])
    yield "## Exit codes"
    yield table(["code", "meaning"], EXIT_CODES)
    yield "With `--json`, an error is one JSON object on the standard error: `error`, `kind`, `hint`, `exit_code`."


def _contents(commands: list[Documented]) -> Iterator[str]:
    yield "## All commands"
    yield table(
        ["command", "what it does"],
        ((f"[`{each.name}`](#{anchor(each.name)})", prose(each.summary)) for each in commands),
    )


def _section(each: Documented) -> Iterator[str]:
    yield f"## {each.name}" if each.group is not None or each.name.count(" ") == 1 else f"### {each.name}"
    yield from map(prose, each.paragraphs)
    yield block([each.usage], "text")
    if each.group is not None:
        return
    yield _rows("argument", each.arguments)
    yield _rows("option", each.options)
    if not any("xits with" in text for text in each.paragraphs):
        yield _EXITS
    yield block(each.examples, "sh") if each.examples else ""
    if each.see:
        yield "See also " + ", ".join(f"[`{name}`](#{anchor(name)})" for name in each.see) + "."


def _rows(kind: str, rows: Iterable[tuple[str, str]]) -> str:
    found = [(code(name), prose(text)) for name, text in rows]
    return table([kind, "meaning"], found) if found else ""


_SECTION = "1"


def manual_page(about: Documented) -> str:
    """The page of a command, to be read by `man -l -`."""
    title = about.name.upper().replace(" ", "-")
    lines = [
        f'.TH "{_plain(title)}" "{_SECTION}" "" "Ratchet {__version__}" "Ratchet"',
        *_name(about),
        ".SH SYNOPSIS",
        f"\\fB{_plain(about.name)}\\fR {_plain(about.usage.removeprefix(about.name).strip())}",
        *_description(about),
        *_commands(about),
        *_list("ARGUMENTS", about.arguments),
        *_list("OPTIONS", about.options),
        *_list("OPTIONS OF EVERY COMMAND", about.shared),
        *_list("EXIT STATUS", EXIT_CODES),
        *_examples(about.examples),
        *_see_also(about),
    ]
    return "\n".join(lines) + "\n"


def _name(about: Documented) -> Iterator[str]:
    summary = about.summary.removesuffix(".")
    yield ".SH NAME"
    yield f"{_plain(about.name.replace(' ', '-'))} \\- {_plain(summary[:1].lower() + summary[1:])}"


def _description(about: Documented) -> Iterator[str]:
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate(about.paragraphs):
        if number:
            yield ".PP"
        yield _text(paragraph)


def _commands(about: Documented) -> Iterator[str]:
    if about.group is not None:
        yield from _list("COMMANDS", [(name, part.help) for name, part in about.group.parts.items()])


def _list(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    found = list(rows)
    if not found:
        return
    yield f".SH {title}"
    for name, text in found:
        yield ".TP"
        yield f"\\fB{_plain(name)}\\fR"
        yield _text(text)


def _examples(examples: Iterable[str]) -> Iterator[str]:
    found = list(examples)
    if not found:
        return
    yield ".SH EXAMPLES"
    yield ".nf"
    yield from map(_plain, found)
    yield ".fi"


def _see_also(about: Documented) -> Iterator[str]:
    program = about.context.find_root().command_path
    names = [*about.see] if about.name == program else [*about.see, program]
    if names:
        yield ".SH SEE ALSO"
        yield ", ".join(f"\\fB{_plain(each.replace(' ', '-'))}\\fR({_SECTION})" for each in names)


def _text(text: str) -> str:
    """Prose; what stands between backticks is bold."""
    return _guarded(re.sub(r"`([^`]+)`", r"\\fB\1\\fR", _escaped(" ".join(text.split()))))


def _plain(text: str) -> str:
    return _guarded(_escaped(text))


def _escaped(text: str) -> str:
    """Backslashes as themselves, and a minus that can be copied instead of a hyphen."""
    return text.replace("\\", "\\e").replace("-", "\\-")


def _guarded(text: str) -> str:
    """A dot or a quote at the beginning of a line would be a request."""
    return f"\\&{text}" if text.startswith((".", "'")) else text
