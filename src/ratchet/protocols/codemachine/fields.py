"""Objects of a configuration, read field by field. What is of the wrong kind is an error with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.protocols.codemachine.errors import Place
from ratchet.protocols.codemachine.values import Call, Value, plain


@dataclass(frozen=True, slots=True)
class Fields:
    """An object. `called` says to people what it is: `agent 'plan'`. A field that is null is not there."""

    entries: Mapping[str, Value]
    place: Place
    called: str

    @classmethod
    def of(cls, value: Value, called: str) -> Fields:
        """Raises `WorkspaceInvalid` for anything but an object."""
        if not isinstance(value.data, Mapping):
            raise value.place.error(f"{called} must be an object, not {kind(value)}")
        return cls(value.data, value.place, called)

    def named(self, called: str) -> Fields:
        return Fields(self.entries, self.place, called)

    def get(self, *names: str) -> Value | None:
        """The first of several names that is there."""
        found = (self.entries[name] for name in names if name in self.entries)
        return next((value for value in found if value.data is not None), None)

    def text(self, *names: str) -> str | None:
        value = self.get(*names)
        return None if value is None else self._text(names[0], value)

    def texts(self, *names: str) -> tuple[str, ...]:
        """One text or an array of them."""
        return tuple(self._text(names[0], each) for each in self.values(*names))

    def values(self, *names: str) -> tuple[Value, ...]:
        """One value or an array of them."""
        value = self.get(*names)
        if value is None:
            return ()
        return value.data if isinstance(value.data, tuple) else (value,)

    def whole(self, *names: str) -> int | None:
        """A whole number that is not negative."""
        value = self.get(*names)
        if value is None:
            return None
        if isinstance(value.data, bool) or not isinstance(value.data, int) or value.data < 0:
            raise value.place.error(f"{names[0]} of {self.called} must be a whole number, not {kind(value)}")
        return value.data

    def flag(self, *names: str) -> bool:
        value = self.get(*names)
        if value is not None and not isinstance(value.data, bool):
            raise value.place.error(f"{names[0]} of {self.called} must be true or false, not {kind(value)}")
        return value is not None and value.data is True

    def fields(self, *names: str) -> Fields | None:
        value = self.get(*names)
        return None if value is None else Fields.of(value, f"{names[0]} of {self.called}")

    def plain(self, *names: str) -> Any:
        value = self.get(*names)
        return None if value is None else plain(value)

    def _text(self, name: str, value: Value) -> str:
        if not isinstance(value.data, str) or not value.data.strip():
            raise value.place.error(f"{name} of {self.called} must be a text, not {kind(value)}")
        return value.data


def objects(value: Value, called: str) -> Iterator[Fields]:
    """The objects of an array. A file that exports one array by name may have it instead."""
    found = value
    if isinstance(value.data, Mapping) and len(value.data) == 1:
        [found] = value.data.values()
    if not isinstance(found.data, tuple):
        raise found.place.error(f"{called}s must be an array, not {kind(found)}")
    for number, each in enumerate(found.data, start=1):
        yield Fields.of(each, f"{called} {number}")


def kind(value: Value) -> str:
    """What a value is, in a word or two."""
    match value.data:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return f"the number {value.data}"
        case str():
            return f"the text {value.data[:40]!r}" if value.data.strip() else "an empty text"
        case tuple():
            return "an array"
        case Mapping():
            return "an object"
        case Call(function):
            return f"{function}(…)"
        case _:
            return "a function"
