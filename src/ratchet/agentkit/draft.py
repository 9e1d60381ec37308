"""The dict that the block of an edit changes. Of a large state it reads a value when that is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ratchet.agentkit.database import Database
from ratchet.agentkit.errors import Misused
from ratchet.agentkit.values import plain, plain_value, text_of

# A state that is not longer is read as a whole: that costs nothing, and then this is a dict like any other.
_SMALL = 64 * 1024


class _Unread:
    """Stands for a value that was not asked for. Never seen, unless a library written in C looks past the methods."""

    def __repr__(self) -> str:
        return "a value that was not read: use `dict(s)`"


_UNREAD = _Unread()


class _Gone:
    """Stands for the value of a key that there is not."""


GONE = _Gone()


class Draft(dict[str, Any]):
    def __init__(self, database: Database) -> None:
        small = database.size <= _SMALL
        super().__init__(dict.fromkeys(database.keys() if small else database.names(), _UNREAD))
        self._database: Database | None = database
        self._known = frozenset(super().keys())
        self._texts: dict[str, str] = {}
        if small:
            self._read_all()

    def changed(self) -> dict[str, Any]:
        """A copy of every value that was changed, and `GONE` for each that was removed. Raises `StateInvalid`."""
        raw = dict(super().items())
        plain(dict.fromkeys(raw.keys() - self._known))
        found = {key: plain_value(key, value) for key, value in raw.items() if value is not _UNREAD}
        changed = {key: value for key, value in found.items() if text_of(value) != self._texts.get(key)}
        return changed | dict.fromkeys(self._known - raw.keys(), GONE)

    def end(self) -> None:
        """Nothing more can be read."""
        self._database = None

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if value is _UNREAD:
            if self._database is None:
                raise Misused(
                    f"{key!r} was not read inside the block", hint="read it there, or with state.get()"
                )
            self._texts[key] = text = self._database.text(key) or "null"
            value = json.loads(text)
            super().__setitem__(key, value)
        return value

    def __iter__(self) -> Iterator[str]:
        # Said here, so that `dict(s)` and `{**s}` ask for the values, too.
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - which is what this does

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            self._read(key)
        return super().pop(key, *default)

    def popitem(self) -> tuple[str, Any]:
        self._read_all()
        return super().popitem()

    def values(self) -> Any:
        self._read_all()
        return super().values()

    def items(self) -> Any:
        self._read_all()
        return super().items()

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __eq__(self, other: object) -> bool:
        self._read_all()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        import copy

        return copy.deepcopy(dict(self), memo)

    def _read(self, key: str) -> None:
        self[key]

    def _read_all(self) -> None:
        for key in list(self):
            self._read(key)
