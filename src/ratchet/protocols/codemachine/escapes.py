"""What is written between the quotes of a JavaScript text."""

from __future__ import annotations

import re

_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_ESCAPE = re.compile(
    r"\\(?:u\{(?P<braces>[0-9A-Fa-f]{1,6})\}|u(?P<four>[0-9A-Fa-f]{4})|x(?P<two>[0-9A-Fa-f]{2})"
    r"|(?P<end>\r\n|[\n\r\u2028\u2029])|(?P<zero>0)(?![0-9])|(?P<other>[^ux0-9]))",
    re.DOTALL,
)


def unescape(raw: str) -> str:
    """The text that `raw` stands for. Raises `ValueError` for an escape that it does not know."""
    units: list[str] = []
    at = 0
    while (found := raw.find("\\", at)) >= 0:
        units.append(raw[at:found])
        escape = _ESCAPE.match(raw, found)
        if escape is None:
            raise ValueError(f"the escape {raw[found : found + 6]!r} is not known")
        units.append(_meaning(escape))
        at = escape.end()
    text = "".join((*units, raw[at:]))
    try:
        # Two halves of a pair become the one character that they stand for.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("it has one half of a surrogate pair without the other") from None


def _meaning(escape: re.Match[str]) -> str:
    digits = escape["braces"] or escape["four"] or escape["two"]
    if digits is not None:
        if int(digits, 16) > 0x10FFFF:
            raise ValueError(f"\\u{{{digits}}} is no character")
        return chr(int(digits, 16))
    if escape["end"] is not None:
        return ""
    return _SIMPLE.get(escape["zero"] or escape["other"], escape["other"])
