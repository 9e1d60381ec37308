"""The address of the ledger, which prints itself without its password."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from ratchet.config.redaction import mask_text

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
