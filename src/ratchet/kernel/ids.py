"""Names for things, and moments as programs read them.

Rows are numbered by the database; these types keep a run's number from being passed as a step's.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import NewType


def iso(milliseconds: int) -> str:
    """Whole milliseconds since 1970 as `2026-07-31T20:11:44.123Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


ProjectId = NewType("ProjectId", int)
RunId = NewType("RunId", int)
StepId = NewType("StepId", int)
AttemptId = NewType("AttemptId", int)
JobId = NewType("JobId", int)
EventId = NewType("EventId", int)

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?", re.ASCII)


def new_id(prefix: str) -> str:
    """A short random id that nothing else has, such as `worker-5f1c09a2d3b4`."""
    return f"{prefix}-{secrets.token_hex(6)}"


def is_name(text: str) -> bool:
    """Whether `text` may name a thing: it is safe as a path segment, a branch and a URL part."""
    return _NAME.fullmatch(text) is not None and ".." not in text
