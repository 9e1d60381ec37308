"""Secrets are masked in whatever is written out: those of URLs, those under secret keys, and those known here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

MASK = "********"

# Greedy up to the last @ of the word: an unescaped / or @ in a password must not show the rest of it.
_USER_INFO = re.compile(r"(://[^:/?#@\s]*):\S*@")
_QUERY = re.compile(r"([?&])([^=?&#\s]+)=([^&#\s]+)")
_SECRET_NAME = re.compile(r"[\w-]*(?:token|password|passwd|secret|api[_-]?key)", re.IGNORECASE)
_SECRET_KEY = re.compile(r"token(?!iz)|password|passwd|secret|api[_-]?key|authorization", re.IGNORECASE)


def mask_text(text: str) -> str:
    """`text` with the passwords of URLs and the secrets of query strings replaced."""
    if "://" in text:
        text = _USER_INFO.sub(rf"\1:{MASK}@", text)
    if "=" in text:
        text = _QUERY.sub(_masked, text)
    return text


def _masked(pair: re.Match[str]) -> str:
    # Drivers read escaped names too.
    secret = _SECRET_NAME.fullmatch(unquote(pair[2])) is not None
    return f"{pair[1]}{pair[2]}={MASK}" if secret else pair[0]


def is_secret_key(key: str) -> bool:
    """Whether a value stored under `key` looks like a secret."""
    return _SECRET_KEY.search(key) is not None


_DEPTH = 8
# Shorter ones are placeholders; hiding them would only spoil the text.
_SHORTEST = 6
_known: set[str] = set()


def remember_secret(value: str) -> None:
    """Never write this value out again, wherever it turns up in this process."""
    if len(value) >= _SHORTEST:
        _known.add(value)


def hide_known(text: str) -> str:
    """`text` without the secrets that this process has come to know, and without those of URLs."""
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, MASK)
    return mask_text(text)


def redact(value: Any, depth: int = _DEPTH) -> Any:
    """A copy of `value` with secrets masked: known ones, those under keys that look secret, and those of URLs."""
    if isinstance(value, str):
        return hide_known(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return hide_known(repr(value))
    if isinstance(value, Mapping):
        return {str(key): redact_under(str(key), item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item, depth - 1) for item in value]
    return hide_known(str(value))


def redact_under(key: str, value: Any, depth: int = _DEPTH) -> Any:
    """`value` as it may be shown under `key`. Numbers stay: a count of tokens is no secret."""
    is_number = value is None or isinstance(value, bool | int | float)
    return MASK if is_secret_key(key) and not is_number else redact(value, depth)
