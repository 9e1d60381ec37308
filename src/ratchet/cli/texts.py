"""Text that a command takes: written on the line, or read from a file that may be long."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ratchet.kernel import Misuse

from_file_option = click.option(
    "--from-file", "file", metavar="FILE", help="Read the text from this file; - is the standard input."
)


def given_text(text: str | None, file: str | None, *, most_bytes: int) -> str:
    """The text, from where it was given. Raises `Misuse` for none, for two, and for one that is too long or no text."""
    if (text is None) == (file is None):
        raise Misuse(
            "the text is missing" if text is None else "the text is given twice",
            hint='write it as "TEXT", or name a file with --from-file',
        )
    content = text.encode(errors="surrogateescape") if text is not None else _read(file or "", most_bytes)
    if len(content) > most_bytes:
        raise Misuse(
            f"the text is longer than {most_bytes} bytes",
            hint="shorten it, or raise agents.feedback_bytes",
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"the text is not UTF-8: {error}", hint="give it as UTF-8") from error


def _read(file: str, most_bytes: int) -> bytes:
    """One byte more than allowed tells that it is too long; what comes after is not read."""
    if file == "-":
        return sys.stdin.buffer.read(most_bytes + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(most_bytes + 1)
    except OSError as error:
        raise Misuse(
            f"{file} cannot be read: {error.strerror or error}", hint="name a file with the text in it"
        ) from error
