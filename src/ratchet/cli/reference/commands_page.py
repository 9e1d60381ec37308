"""`docs/reference/cli.md`: every command with what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ratchet.cli.program import root
from ratchet.cli.reference.markdown import GENERATED, anchor, block, code, page, prose, table
from ratchet.cli.reference.walking import Documented, every_command

EXIT_CODES = (
    ("0", "It is done."),
    ("1", "It failed, or what was asked for stands: blocked, waiting, not found."),
    ("2", "Misuse: an unknown command, a wrong value, wrong settings, no ledger."),
    ("3", "Something that is needed is missing: an engine, a program, a package."),
    ("130", "It was interrupted by Ctrl-C."),
    ("141", "Whoever read the output had enough, as `head` does."),
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
