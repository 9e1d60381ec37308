"""A change of an agent's state, as it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratchet.agentkit import Change


def change_record(change: Change) -> dict[str, Any]:
    """`restored` is the change whose state came back, and `recovered` says that nobody told of it when it happened."""
    return {
        "number": change.number,
        "at": change.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "by": change.by,
        "restored": change.restored,
        "recovered": change.recovered,
    }
