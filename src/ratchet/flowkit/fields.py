"""The keys of one JSON object, taken one by one; what nobody takes is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """Reads the keys of an object. What is wrong is added to `problems`; a key that is null counts as absent."""

    def __init__(self, data: Mapping[str, Any], where: str, problems: list[str]) -> None:
        self._data = data
        self._where = where
        self._taken: set[str] = set()
        self.problems = problems

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def keep(self, key: str) -> Any:
        """The value of a key that stays where it is, among the rest."""
        return self._data.get(key)

    def rest(self) -> dict[str, Any]:
        """What was not taken."""
        return {key: value for key, value in self._data.items() if key not in self._taken}

    def any(self, key: str) -> Any:
        self._taken.add(key)
        return self._data.get(key)

    def text(self, key: str) -> str | None:
        value = self.any(key)
        if value is None or isinstance(value, str):
            return value
        self.wrong(key, "a text", value)
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; one text alone is a list of one."""
        value = self.any(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return tuple(value)
        self.wrong(key, "a list of texts", value)
        return ()

    def flag(self, key: str, default: bool) -> bool:
        value = self.any(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(key, "true or false", value)
        return default

    def number(self, key: str, default: float) -> float:
        value = self.any(key)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
        self.wrong(key, "a number", value)
        return default

    def whole(self, key: str, default: int) -> int:
        value = self.any(key)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.wrong(key, "a whole number", value)
        return default

    def choice(self, key: str, choices: type[Choice]) -> Choice | None:
        value = self.any(key)
        if value is None:
            return None
        try:
            return choices(value)
        except ValueError:
            self.wrong(key, f"one of {', '.join(choices)}", value)
            return None

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.any(key)
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return dict(value)
        self.wrong(key, "an object", value)
        return {}

    def wrong(self, key: str, wanted: str, value: object) -> None:
        self.problems.append(f"{self._where}{key} must be {wanted}, not {shown(value)}")

    def missing(self, key: str) -> None:
        self.problems.append(f"{self._where}{key} is missing")


def shown(value: object) -> str:
    """A value as it is named in a sentence: short, and what it is if it is long."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value) if isinstance(value, str) else str(value)[:100]
    return text if len(text) <= 100 else f"{text[:97]}…"
