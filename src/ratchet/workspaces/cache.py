"""A bounded memory of immutable things, shared by threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Values by hash; the least recently used go first once their weights exceed the room."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._used = 0
        self._values: OrderedDict[str, tuple[Value, int]] = OrderedDict()
        # Order and sum change together.
        self._lock = threading.Lock()

    def get(self, key: str) -> Value | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: str, value: Value, weight: int) -> None:
        with self._lock:
            if key in self._values or weight > self._room // 4:
                return
            self._values[key] = (value, weight)
            self._used += weight
            while self._used > self._room:
                _, (_, freed) = self._values.popitem(last=False)
                self._used -= freed
