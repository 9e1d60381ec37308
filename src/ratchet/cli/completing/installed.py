"""Names that do not come from the ledger: engines and tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.cli.completing.place import Place


def engines(place: Place, built_in: Iterable[str]) -> Mapping[str, str]:
    """Every engine that can be named, with what it is."""
    described = place.tables.get("engines", {}).get("command", {})
    return {
        **dict.fromkeys(_points("ratchet.engines"), "installed"),
        **dict.fromkeys(built_in, "built in"),
        **dict.fromkeys(described, "described in ratchet.toml"),
    }


def tasks() -> Mapping[str, str]:
    return dict.fromkeys(_points("ratchet.tasks"), "an installed task")


def _points(group: str) -> list[str]:
    # Slow to import, and most lines do without it.
    from importlib.metadata import entry_points

    return sorted(point.name for point in entry_points(group=group))
