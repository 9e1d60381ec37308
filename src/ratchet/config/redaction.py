"""Secrets are masked in whatever is written out: those of URLs, those under secret keys, and those known here.

The address of the ledger prints itself without its password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

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


_ALLOWED = "use sqlite:///path/to/ledger.db or postgresql://user@host/name"


@dataclass(frozen=True, slots=True, repr=False)
class DatabaseUrl:
    """A `sqlite:///…` or `postgresql://…` address. `str` and `repr` hide the password; `reveal` does not."""

    _text: str

    @classmethod
    def parse(cls, text: str) -> DatabaseUrl:
        """Raises `ValueError` with a reason that never contains the password."""
        scheme, separator, rest = text.strip().partition("://")
        if not separator:
            raise ValueError(f"is not a URL; {_ALLOWED}")
        if scheme == "sqlite":
            _check_file(rest)
        elif scheme in ("postgresql", "postgres"):
            _check_port(text)
            scheme = "postgresql"
        elif scheme.startswith(("postgresql+", "sqlite+")):
            raise ValueError(
                f"names the driver {scheme!r}, but Ratchet chooses the driver itself; {_ALLOWED}"
            )
        else:
            raise ValueError(
                f"has the scheme {scheme!r}, a database that Ratchet cannot keep a ledger in; {_ALLOWED}"
            )
        return cls(f"{scheme}://{rest}")

    def reveal(self) -> str:
        """The whole address, password included, for the driver alone."""
        return self._text

    def relative_to(self, directory: Path) -> DatabaseUrl:
        """The same address, with a relative SQLite path made absolute under `directory`."""
        if self.path is None or self.path.is_absolute():
            return self
        return DatabaseUrl(f"sqlite:///{directory}/{self._text.removeprefix('sqlite:///')}")

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]:
        return "sqlite" if self._text.startswith("sqlite:") else "postgresql"

    @property
    def host(self) -> str | None:
        """The machine of a PostgreSQL ledger, where it is named."""
        return None if self.dialect == "sqlite" else urlsplit(self._text).hostname

    @property
    def path(self) -> Path | None:
        """The file of a SQLite ledger."""
        if self.dialect != "sqlite":
            return None
        return Path(self._text.removeprefix("sqlite:///").partition("?")[0])

    def __str__(self) -> str:
        return mask_text(self._text)

    def __repr__(self) -> str:
        return f"DatabaseUrl({str(self)!r})"


def _check_file(rest: str) -> None:
    path = unquote(rest.partition("?")[0])
    if not path.startswith("/"):
        raise ValueError("needs three slashes before a relative path and four before an absolute one")
    if path in ("/", "/:memory:"):
        raise ValueError("must name a file: a ledger in memory would be lost with the process")


def _check_port(text: str) -> None:
    try:
        _ = urlsplit(text).port
    except ValueError:
        # The parser's own message quotes what it took for the port, which may be part of the password.
        raise ValueError("has a port that is not a number; escape : / ? # @ in the password as %XX") from None
