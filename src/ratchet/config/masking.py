"""Keeping secrets out of what people and log files see."""

from __future__ import annotations

import re

MASK = "********"

# Greedy up to the last @ of the word: an unescaped / or @ in a password must not show the rest of it.
_USER_INFO = re.compile(r"(://[^:/?#@\s]*):\S*@")
_QUERY = re.compile(r"([?&][\w-]*(?:token|password|passwd|secret|api[_-]?key)=)[^&#\s]+", re.IGNORECASE)
_SECRET_KEY = re.compile(r"token(?!iz)|password|passwd|secret|api[_-]?key|authorization", re.IGNORECASE)


def mask_text(text: str) -> str:
    """`text` with the passwords of URLs and the secrets of query strings replaced."""
    if "://" in text:
        text = _USER_INFO.sub(rf"\1:{MASK}@", text)
    if "=" in text:
        text = _QUERY.sub(rf"\1{MASK}", text)
    return text


def is_secret_key(key: str) -> bool:
    """Whether a value stored under `key` looks like a secret."""
    return _SECRET_KEY.search(key) is not None
