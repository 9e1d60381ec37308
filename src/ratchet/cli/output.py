"""Showing results: JSON to a program, words to a person. Only what was asked for goes to stdout."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ratchet.cli.words import lines

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession


def print_document(document: Any) -> None:
    """One JSON document, laid out for reading."""
    print(_json(document, indent=2))


def print_line(document: Any) -> None:
    """One JSON document on one line, at once: somebody may be waiting for it."""
    print(_json(document, separators=(",", ":")), flush=True)


def _json(document: Any, **form: Any) -> str:
    """Letters of all scripts as they are; what would steer the terminal, or what it cannot show, as `\\u…`."""
    text = json.dumps(document, ensure_ascii=False, default=str, **form)
    if text.isascii():
        return text
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(document, default=str, **form)
    return "".join(
        each if each.isascii() or each.isprintable() else json.dumps(each).strip('"') for each in text
    )


T = TypeVar("T")


def show_list(
    session: CliSession,
    items: Sequence[T],
    columns: Mapping[str, Callable[[T], object]],
    *,
    record: Callable[[T], dict[str, Any]],
    empty: str,
) -> None:
    """A table, or a JSON list. `empty` says what to do when there is nothing yet."""
    if session.json:
        print_document([record(item) for item in items])
    elif items:
        from ratchet.cli.tables import print_table

        print_table(items, columns)
    else:
        note(empty)


def show_one(session: CliSession, document: Mapping[str, Any], fields: Mapping[str, object]) -> None:
    """One thing: its fields, or a JSON object."""
    if session.json:
        print_document(document)
    else:
        from ratchet.cli.tables import print_fields

        print_fields(fields)


def show_page(session: CliSession, document: Any, show: Callable[..., None], *shown: Any) -> None:
    """A page of its own look, or a JSON document."""
    if session.json:
        print_document(document)
    else:
        show(*shown)


def show_problems(session: CliSession, kind: str, name: str, problems: Sequence[str]) -> int:
    """What is wrong with a file or a spec, and the exit code."""
    if session.json:
        print_document({kind: name, "valid": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            print(lines(problem))
        note(f"{name}: {len(problems)} {'problem' if len(problems) == 1 else 'problems'}")
    else:
        print("Valid")
    return 1 if problems else 0


def print_foreign(text: str, end: str = "\n") -> None:
    """Text that an engine, an agent or a candidate has written.

    A terminal would obey what is in it; a program that reads it wants it as it is.
    """
    print(f"{lines(text)}\n" if sys.stdout.isatty() else f"{text}{end}", end="", flush=True)


def confirm(session: CliSession, document: Mapping[str, Any], text: str) -> None:
    """Say what was done."""
    if session.json:
        print_document(document)
    else:
        print(text)


def note(text: str) -> None:
    """Something for a person beside the result."""
    print(text, file=sys.stderr, flush=True)
    said()


_said_at = time.monotonic()


def said() -> None:
    """Remember that something was said just now."""
    global _said_at
    _said_at = time.monotonic()


def silent_seconds() -> float:
    """How long nothing was said."""
    return time.monotonic() - _said_at
