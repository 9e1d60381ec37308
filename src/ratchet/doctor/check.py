"""What a probe found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `warn`: works without it, but less well. `mend` tells how to put it right."""

    name: str
    status: Status
    detail: str
    mend: str | None = None


Probe = Callable[[], list[Check]]
