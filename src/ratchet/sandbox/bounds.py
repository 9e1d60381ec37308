"""The limits of one process tree."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.kernel import Misuse

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one run may use; `None` is no limit.

    `wall_seconds`, `cpu_seconds`, `memory_bytes` and `processes` hold for the whole tree, `output_bytes` for stdout and
    for stderr each, and `file_bytes` for each file that is written. `cpus` are the numbers of those it runs on; without
    any it runs on all. A command's tree is looked at every `look_seconds`: more seldom costs less, which counts
    for what runs long, and lets it pass a bound by more.
    """

    wall_seconds: float = 60.0
    cpu_seconds: float | None = None
    memory_bytes: int | None = 1024 * _MIB
    processes: int = 64
    output_bytes: int = _MIB
    file_bytes: int | None = 1024 * _MIB
    cpus: tuple[int, ...] = ()
    look_seconds: float = 0.025

    def __post_init__(self) -> None:
        for name in (
            "wall_seconds",
            "cpu_seconds",
            "memory_bytes",
            "processes",
            "output_bytes",
            "file_bytes",
            "look_seconds",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise Misuse(f"the bound {name} must be above 0 and finite, not {value!r}")
