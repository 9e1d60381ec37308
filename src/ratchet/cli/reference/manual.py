"""Manual pages, in the language that `man` reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ratchet import __version__
from ratchet.cli.reference.commands_page import EXIT_CODES

if TYPE_CHECKING:
    from ratchet.cli.reference.walking import Documented

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
