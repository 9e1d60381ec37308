"""Reading the keys of a definition: each is asked for by name and type, and everything that is wrong is gathered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse


class ToolError(Misuse):
    """A definition that cannot be used. `problems` has one sentence for each thing that is wrong, with its key."""

    def __init__(self, problems: list[str], *, file: str | None = None) -> None:
        where = f"{file}: " if file else ""
        super().__init__(where + "; ".join(problems), hint="correct the definition of the tool")
        self.problems = problems
        self.file = file


class Unreadable(Exception):
    """One value that is not what it should be; becomes a problem of its key."""


class Fields:
    """The keys of one mapping. `rest` has those that nobody has asked for."""

    def __init__(self, data: Mapping[str, Any], *, folder: Path | None = None) -> None:
        self.rest = dict(data)
        self.folder = folder
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.files: list[str] = []
        """Files of the folder that were read."""
        self._under = ""

    def take(self, key: str) -> Any:
        return self.rest.pop(key, None)

    def wrong(self, key: str, what: str) -> None:
        """Say what makes the definition unusable."""
        self.problems.append(f"{self._under}{key}: {what}")

    def warn(self, key: str, what: str) -> None:
        """Say what is odd, but does no harm."""
        self.warnings.append(f"{self._under}{key}: {what}")

    def text(self, key: str, default: str = "") -> str:
        """Numbers and truth values count as their text: YAML makes them of words that look like one."""
        return self.optional_text(key) or default

    def optional_text(self, key: str) -> str | None:
        found = self.take(key)
        if found is None or isinstance(found, str):
            return found
        if isinstance(found, bool):
            return "true" if found else "false"
        if isinstance(found, int | float):
            return str(found)
        self.wrong(key, f"{_shown(found)} is not a text")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; one text counts as a list of one."""
        found = self.take(key)
        if found is None:
            return ()
        listed = found if isinstance(found, list) else [found]
        if any(isinstance(each, list | dict) or each is None for each in listed):
            self.wrong(key, f"{_shown(found)} is not a list of texts")
            return ()
        return tuple(each if isinstance(each, str) else _plain(each) for each in listed)

    def flag(self, key: str, default: bool) -> bool:
        found = self.take(key)
        if found is None or isinstance(found, bool):
            return default if found is None else found
        self.wrong(key, f"{_shown(found)} is neither true nor false")
        return default

    def number(self, key: str, *, above: float | None = None, most: float | None = None) -> float | None:
        found = self.take(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            self.wrong(key, f"{_shown(found)} is not a number")
        elif above is not None and found <= above:
            self.wrong(key, f"{_shown(found)} must be above {above:g}")
        elif most is not None and found > most:
            self.wrong(key, f"{_shown(found)} must be at most {most:g}")
        else:
            return found
        return None

    def whole(self, key: str, *, above: int | None = None, most: int | None = None) -> int | None:
        found = self.number(key, above=above, most=most)
        if found is not None and found != int(found):
            self.wrong(key, f"{_shown(found)} is not a whole number")
            return None
        return None if found is None else int(found)

    def table(self, key: str) -> dict[str, Any]:
        found = self.take(key)
        if found is None or isinstance(found, dict):
            return found or {}
        self.wrong(key, f"{_shown(found)} is not a table")
        return {}

    def inside(self, key: str) -> Fields:
        """The fields of the table under `key`; what is wrong with them is wrong with the whole."""
        inner = Fields(self.table(key), folder=self.folder)
        inner.problems, inner.warnings, inner.files = self.problems, self.warnings, self.files
        inner._under = f"{self._under}{key}."
        return inner


def _plain(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
