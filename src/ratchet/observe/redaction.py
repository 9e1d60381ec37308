"""Taking secrets out of structured values before they leave the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.config.masking import MASK, is_secret_key, mask_text

_DEPTH = 8


def redact(value: Any, depth: int = _DEPTH) -> Any:
    """A copy of `value` with secrets masked: under keys that look secret, and in the texts of URLs."""
    if isinstance(value, str):
        return mask_text(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return mask_text(repr(value))
    if isinstance(value, Mapping):
        return {str(key): redact_under(str(key), item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item, depth - 1) for item in value]
    return mask_text(str(value))


def redact_under(key: str, value: Any, depth: int = _DEPTH) -> Any:
    """`value` as it may be shown under `key`. Numbers stay: a count of tokens is no secret."""
    is_number = value is None or isinstance(value, bool | int | float)
    return MASK if is_secret_key(key) and not is_number else redact(value, depth)
