"""`ratchet memory …`"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm, note, show_list
from ratchet.cli.params import COUNT
from ratchet.cli.progress import working
from ratchet.cli.session import CliSession, configure_logs
from ratchet.cli.words import age, compact
from ratchet.kernel import Misuse, NotFound
from ratchet.memory import FILE_NAME, FoundEntry, Memory, MemoryEntry, open_memory, search_advice
from ratchet.memory import reembed as reembed_all
from ratchet.operations import record

F = TypeVar("F", bound=Callable[..., Any])
_EMPTY = "Nothing is remembered that fits. `ratchet memory store TEXT` adds something."


def _choice_options(function: F) -> F:
    """The options that say which entries are meant."""
    for option in (
        click.option("--scope", metavar="NAME", help="Only of this scope, such as project:3."),
        click.option(
            "--tag", "tags", metavar="TAG", multiple=True, help="Only with this tag, and all others given."
        ),
        click.option("--kind", metavar="KIND", help="Only of this kind: lesson, tool, work, …"),
    ):
        function = option(function)
    return function


@command(
    examples=[
        'ratchet memory store "SQLite needs WAL for many readers." --tag sqlite',
        "git show -s | ratchet memory store - --kind work --scope project:3",
    ],
    see=["memory find"],
)
@click.argument("text", help="What to remember; - is the standard input.")
@click.option(
    "--kind", default="lesson", show_default=True, metavar="KIND", help="What it is: lesson, tool, work, …"
)
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="A tag to find it by; may be given again.")
@click.option("--scope", metavar="NAME", help="What it belongs to, such as project:3.")
@click.option(
    "--data", metavar="JSON", default="{}", show_default=True, help="An object that is kept with it."
)
@click.option("--key", metavar="TEXT", help="Replace what was stored with the same key.")
def store(session: CliSession, /, text: str, data: str, **how: Any) -> None:
    """Remember a text.

    It is found again by its meaning, by engines and by `ratchet memory find`. A memory is made if there is none.
    """
    said = sys.stdin.read() if text == "-" else text
    facts = _object(data)
    with _opened(session, making=True) as memory:
        id = memory.store(said, data=facts, **how)
    confirm(session, {"id": id}, f"Remembered as {id}.")


@command(
    examples=['ratchet memory find "slow database"', "ratchet memory find WAL --words --tag sqlite"],
    see=["memory list"],
)
@click.argument("text", help="What to look for.")
@click.option(
    "--words", "by_words", is_flag=True, help="Find entries that have these words, not this meaning."
)
@_choice_options
@click.option("--limit", "-n", type=COUNT, default=10, show_default=True, help="At most so many.")
def find(session: CliSession, /, text: str, by_words: bool, **where: Any) -> None:
    """Find what means most nearly the same, or has the same words.

    The likeness is at most 1. It is worked out here; nothing leaves the machine unless the settings say so.
    """
    with _opened(session) as memory:
        found = memory.words(text, **where) if by_words else memory.find(text, **where)
    if not by_words and (advice := search_advice()):
        note(advice)
    show_list(
        session,
        found,
        {
            "likeness": lambda each: f"{each.likeness:.3f}",
            **{name: _of_entry(column) for name, column in _COLUMNS.items()},
        },
        record=_found_record,
        empty=_EMPTY,
    )


@command("list", examples=["ratchet memory list", "ratchet memory list --kind lesson --scope project:3"])
@_choice_options
@click.option("--limit", "-n", type=COUNT, default=50, show_default=True, help="At most so many.")
def list_(session: CliSession, /, **where: Any) -> None:
    """List what is remembered, newest first.

    What is learned in runs is in here as well as what was stored by hand.
    """
    with _opened(session) as memory:
        found = memory.entries(**where)
    show_list(session, found, _COLUMNS, record=_record, empty=_EMPTY)


@command(
    examples=["ratchet memory delete 0198c2f0", "ratchet memory delete --kind work --scope project:3"],
    see=["memory list"],
)
@click.argument("id", metavar="[ENTRY]", required=False, help="The id that `ratchet memory list` shows.")
@_choice_options
def delete(session: CliSession, /, **where: Any) -> None:
    """Forget one entry, or all that fit.

    Without ENTRY, at least one of --kind, --tag and --scope says which ones. It cannot be undone.
    """
    with _opened(session) as memory:
        count = memory.delete(**where)
    if where["id"] is not None and not count:
        raise NotFound("entry", where["id"])
    confirm(session, {"deleted": count}, f"{count} {'entry is' if count == 1 else 'entries are'} forgotten.")


@command(examples=["ratchet memory reembed"])
def reembed(session: CliSession) -> None:
    """Re-embed every entry, after the embedder has changed.

    Other processes may keep running; they wait, or fail with the advice to open the memory again.
    """
    loaded = session.load()
    configure_logs(loaded)
    _check_present(session)
    with working("embedding again"):
        count = reembed_all(loaded.settings.memory, loaded.home)
    confirm(
        session,
        {"reembedded": count},
        f"{count} {'entry is' if count == 1 else 'entries are'} embedded again.",
    )


@contextlib.contextmanager
def _opened(session: CliSession, *, making: bool = False) -> Iterator[Memory]:
    loaded = session.load()
    configure_logs(loaded)
    if not making:
        _check_present(session)
    with contextlib.closing(open_memory(loaded.settings.memory, loaded.home)) as memory:
        yield memory


def _check_present(session: CliSession) -> None:
    """Looking at a memory must not make one."""
    loaded = session.load()
    path = loaded.home / FILE_NAME
    if loaded.settings.memory.store == "sqlite" and not path.exists():
        raise Misuse(f"no memory here: {path} does not exist", hint="`ratchet memory store TEXT` makes one")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Misuse(f"--data is not JSON: {error}", hint="""such as '{"run": 3}'""") from None
    if not isinstance(value, dict):
        raise Misuse(f"--data is {compact(value)}; it must be an object", hint="""such as '{"run": 3}'""")
    return value


_COLUMNS: dict[str, Callable[[MemoryEntry], object]] = {
    "id": lambda entry: entry.id,
    "kind": lambda entry: entry.kind,
    "scope": lambda entry: entry.scope,
    "tags": lambda entry: " ".join(sorted(entry.tags)) or None,
    "created": lambda entry: age(entry.created_at),
    "text": lambda entry: entry.text,
}


def _of_entry(column: Callable[[MemoryEntry], object]) -> Callable[[FoundEntry], object]:
    return lambda found: column(found.entry)


def _record(entry: MemoryEntry) -> dict[str, Any]:
    return {**record(entry), "tags": sorted(entry.tags)}


def _found_record(found: FoundEntry) -> dict[str, Any]:
    return {"likeness": found.likeness, **_record(found.entry)}
