"""What a node is to do."""

from __future__ import annotations

import marshal
import os

# Later versions would have each word looked up in the table of all that Python knows.
_FORMAT = 2


class Work:
    """Travels in a file that only the node reads. A plain class, since no other looks at so little when it is used."""

    def __init__(
        self,
        source: bytes,
        given: bytes,
        name: str,
        function: str,
        spread: bool,
        scratch: bool,
        readable: tuple[str, ...],
        places: tuple[tuple[str, str], ...],
        environment: dict[str, str],
        cpu_seconds: float | None,
        memory_bytes: int | None,
        file_bytes: int | None,
        cpus: tuple[int, ...],
    ) -> None:
        self.source = source
        self.given = given
        self.name = name
        self.function = function
        self.spread = spread
        self.scratch = scratch
        self.readable = readable
        self.places = places
        self.environment = environment
        self.cpu_seconds = cpu_seconds
        self.memory_bytes = memory_bytes
        self.file_bytes = file_bytes
        self.cpus = cpus

    def packed(self) -> bytes:
        # Both ends are the same Python, and to read this costs far less than to read JSON.
        return marshal.dumps(tuple(vars(self).values()), _FORMAT)

    @staticmethod
    def read(descriptor: int) -> Work:
        return Work(*marshal.loads(os.pread(descriptor, os.lseek(descriptor, 0, os.SEEK_END), 0)))
