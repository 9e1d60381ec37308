"""Clearing away what a process that died had begun in an agent's place."""

from __future__ import annotations

from ratchet.agents.place import Place
from ratchet.workspaces.removal import remove_tree

_STAGING = "-staging"


def sweep(place: Place) -> None:
    """Remove every unfinished directory. Only for who holds the place: nobody else can be at work in one then."""
    for path in place.root.iterdir():
        if path == place.new or path.name.endswith(_STAGING):
            remove_tree(path)
