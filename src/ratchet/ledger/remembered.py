"""What a process remembers of rows that do not change any more, so that it reads them once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

_MOST = 4096
_FORGOTTEN_AT_ONCE = 512


class Remembered:
    """Values by a key that says all that could be different about them. Those that came first are forgotten first."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}
        # Whoever forgets goes through the values.
        self._lock = threading.Lock()

    def several(self, keys: Iterable[Hashable]) -> list[Any]:
        """The values of these keys in their order, `None` for one that is not known."""
        return list(map(self._values.get, keys))

    def add(self, values: Mapping[Hashable, Any]) -> None:
        with self._lock:
            self._values.update(values)
            while len(self._values) > _MOST:
                for key in list(itertools.islice(self._values, _FORGOTTEN_AT_ONCE)):
                    del self._values[key]
