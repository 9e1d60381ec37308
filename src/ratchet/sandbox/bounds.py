"""The limits of one process tree."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.kernel import Misuse

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one run may use; `None` is no limit.

    `wall_seconds`, `cpu_seconds`, `memory_bytes` and `processes` hold for the whole tree, `output_bytes` for stdout and
    for stderr each, and `file_bytes` for each file that is written.
    """

    wall_seconds: float = 60.0
    cpu_seconds: float | None = None
    memory_bytes: int | None = 1024 * _MIB
    processes: int = 64
    output_bytes: int = _MIB
    file_bytes: int | None = 1024 * _MIB

    def __post_init__(self) -> None:
        for name in (
            "wall_seconds",
            "cpu_seconds",
            "memory_bytes",
            "processes",
            "output_bytes",
            "file_bytes",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise Misuse(f"the bound {name} must be above 0 and finite, not {value!r}")
