"""How a check ends when its version does not pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class NotPassed(Exception):
    """A version breaks a rule. The message says which one, where, and what its author should do.

    `details` go into the report.
    """

    def __init__(self, reason: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.details = dict(details or {})
