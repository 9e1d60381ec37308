"""Finding the line of a key in a TOML text, for messages: the standard parser does not tell."""

from __future__ import annotations

import re
from collections import Counter

from ratchet.config.sources import Key

_TABLE = re.compile(r"\s*(\[\[?)([^\[\]]+)\]")
_LONG_TEXT = re.compile(r"\"{3}|'{3}")
_PAIR = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, key: Key) -> str:
    """`:12` for line 12, or nothing when the key is written in a way that is not recognised.

    The second table of an array `[[each]]` is the key `("each", "1")`.
    """
    table: Key = ()
    arrays: Counter[Key] = Counter()
    quotes: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        inside, quotes = quotes, _open_quotes(line, quotes)
        if inside is not None:
            continue
        if header := _TABLE.match(line):
            table = _parts(header[2])
            if header[1] == "[[":
                arrays[table] += 1
                table = (*table, str(arrays[table] - 1))
            if table == key:
                return f":{number}"
        elif pair := _PAIR.match(line):
            here = table + _parts(pair[1])
            if here == key[: len(here)]:
                return f":{number}"
    return ""


def _open_quotes(line: str, quotes: str | None) -> str | None:
    """The quotes of a text of many lines that is still open behind `line`."""
    for found in _LONG_TEXT.findall(line):
        if quotes is None:
            quotes = found
        elif found == quotes:
            quotes = None
    return quotes


def _parts(text: str) -> Key:
    return tuple(part.strip("\"'") for part in _PART.findall(text))
