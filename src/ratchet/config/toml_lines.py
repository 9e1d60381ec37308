"""Finding the line of a key in a TOML text, for messages: the standard parser does not tell."""

from __future__ import annotations

import re

from ratchet.config.schema import Key

_TABLE = re.compile(r"\s*\[([^\[\]]+)\]")
_PAIR = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, key: Key) -> str:
    """`:12` for line 12, or nothing when the key is written in a way that is not recognised."""
    table: Key = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = _parts(header[1])
            if table == key:
                return f":{number}"
        elif pair := _PAIR.match(line):
            here = table + _parts(pair[1])
            if here == key[: len(here)]:
                return f":{number}"
    return ""


def _parts(text: str) -> Key:
    return tuple(part.strip("\"'") for part in _PART.findall(text))
