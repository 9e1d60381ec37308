"""The program: parse the command line, call the command, and tell what went wrong."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from ratchet import __version__
from ratchet.cli.catalogue import CATALOGUE
from ratchet.cli.command import LazyGroup
from ratchet.cli.session import CliSession

# What opening a ledger, asking for the token and looking at an engine leave behind.
_TRACES = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "token")


def settle_new_home(home: Path, *, failed: bool) -> None:
    """Remove a home in which a command that `failed` has recorded nothing: it would be that of all that is below it.

    One that stays is hidden from Git, since it may lie in a repository and has secrets in it.
    """
    if not home.is_dir():
        return
    if failed and _is_empty(home):
        shutil.rmtree(home, ignore_errors=True)
        return
    from ratchet.config.file import hide_from_git

    with contextlib.suppress(OSError):
        hide_from_git(home)


def _is_empty(home: Path) -> bool:
    files = [path for path in home.rglob("*") if not path.is_dir() or path.is_symlink()]
    if any(path.parent != home or path.name not in _TRACES for path in files):
        return False
    return not (home / "ledger.db").exists() or not _has_events(home / "ledger.db")


def _has_events(ledger: Path) -> bool:
    """Whether anything was recorded. A file that cannot be read may hold something."""
    import sqlite3

    try:
        with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT 1 FROM events LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return True


NAME = "ratchet"
COMPLETION_VARIABLE = "_RATCHET_COMPLETE"
MISSING = 3

root = LazyGroup(
    CATALOGUE,
    name=NAME,
    help="Ratchet runs coding agents in a loop that only moves forward.\n\n"
    "They propose a change, it is run apart and judged by something that they cannot edit, and it is kept only if it "
    "is better. Everything that happens is recorded in a ledger in the home, which `ratchet init` makes.",
    examples=[
        "ratchet init",
        "ratchet doctor",
        'ratchet protocol new "Add a login page with tests." --run',
        "ratchet research run circle_packing --engine search --trials 200",
    ],
    epilog="Exit codes: 0 done, 1 failed, 2 misuse, 3 something needed is missing.",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            help="Show the version and exit.",
            callback=lambda context, _option, wanted: _version(context) if wanted else None,
        )
    ],
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> NoReturn:
    """The entry point of the installed command."""
    if COMPLETION_VARIABLE in os.environ:
        from ratchet.cli.completion import answer

        sys.exit(answer(root, program=NAME, variable=COMPLETION_VARIABLE))
    _open_closed_streams()
    sys.exit(run(sys.argv[1:]))


def _open_closed_streams() -> None:
    """Have nothing read from and written to what the caller has closed, as with `>&-`: else the next file that is
    opened, such as the ledger, would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def run(arguments: Sequence[str], session: CliSession | None = None) -> int:
    """Do what `arguments` say; the exit code. Whatever goes wrong is told on stderr, never raised.

    A `session` says what holds beside them, such as the home.
    """
    session = CliSession() if session is None else session
    _print_anything()
    try:
        code = _call(arguments, session)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  this is the one place that turns errors into exit codes
        from ratchet.cli.failures import tell

        session.json = session.json or "--json" in arguments
        code = tell(error, session)
        _abandon_unwritable_output()
        _settle(session, failed=True)
        if code == MISSING and arguments[:1] != ["setup"]:
            return _set_up(error, arguments, session)
    else:
        _settle(session, failed=code != 0)
    return code


def _settle(session: CliSession, *, failed: bool) -> None:
    if session.new_home is not None:
        settle_new_home(session.new_home, failed=failed)


def _set_up(error: BaseException, arguments: Sequence[str], session: CliSession) -> int:
    """What becomes of a command that misses something: if setup fixes it and the person agrees, it is run again."""
    from ratchet.cli.failures import setup_line, wants_setup

    if not wants_setup(error, session):
        return MISSING
    return run(setup_line(session)) or run(arguments)


def _call(arguments: Sequence[str], session: CliSession) -> int:
    try:
        with root.make_context(NAME, list(arguments), obj=session) as context:
            result = root.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return result if isinstance(result, int) else 0


def _version(context: click.Context) -> None:
    click.echo(f"{NAME} {__version__}")
    context.exit()


def _print_anything() -> None:
    """Have text that the terminal's encoding lacks shown as escapes: a strange name must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a stream that a test or a tool put there
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _abandon_unwritable_output() -> None:
    """Forget what is left in the buffer if it cannot be written; Python would complain about it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
