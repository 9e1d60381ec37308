"""One line of the history of a state."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ratchet.agentkit.difference import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the state: when it was made, and by whom."""

    number: int
    at: datetime
    by: str | None
    recovered: bool = False
    """The file was found changed: by hand, or by somebody who did not use the kit."""
    restored: int | None = None
    """The number of the earlier state that was made the current one again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A change with the state that it led to: the whole of it, or what is different from the entry before."""

    change: Change
    digest: str
    state: dict[str, Any] | None = None
    since: int = 0
    """The last entry that holds a whole state, where this one does not."""
    weight: int = 0
    """How many bytes of differences there are since then."""
    steps: list[Step] | None = None

    def line(self) -> bytes:
        """As it stands in the file, without the newline. The number comes first: a search reads no further."""
        change = self.change
        said: dict[str, Any] = {"number": change.number, "at": change.at.isoformat(), "by": change.by}
        if change.recovered:
            said["recovered"] = True
        if change.restored is not None:
            said["restored"] = change.restored
        said["digest"] = self.digest
        if self.state is not None:
            said["state"] = self.state
        else:
            said |= {"since": self.since, "weight": self.weight, "steps": self.steps}
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(canonical: bytes) -> str:
    return hashlib.sha256(canonical).hexdigest()


def read_entry(line: bytes) -> Entry | None:
    """The entry that a line is; `None` if it is none."""
    try:
        said = json.loads(line)
        return Entry(
            change=Change(
                number=_whole(said["number"]),
                at=datetime.fromisoformat(said["at"]).astimezone(UTC),
                by=said["by"] if said["by"] is None else _typed(said["by"], str),
                recovered=said.get("recovered", False) is True,
                restored=_whole(said["restored"]) if "restored" in said else None,
            ),
            digest=_typed(said["digest"], str),
            state=_typed(said["state"], dict) if "state" in said else None,
            since=_whole(said.get("since", 0)),
            weight=_whole(said.get("weight", 0)),
            steps=None if "state" in said else _typed(said["steps"], list),
        )
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(value)
    return value


def _typed(value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value
