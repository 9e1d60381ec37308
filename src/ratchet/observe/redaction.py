"""Taking secrets out of structured values before they leave the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.config.database_url import MASK, is_secret_key, mask_text

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
