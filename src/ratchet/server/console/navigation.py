"""The places of the console, in the order in which they are shown."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """`key` leads there from the keyboard, after a g."""

    name: str
    path: str
    key: str


PLACES = (
    Place("Home", "/console/", "h"),
    Place("Runs", "/console/runs", "n"),
    Place("Projects", "/console/projects", "o"),
    Place("Protocols", "/console/protocols", "p"),
    Place("Research", "/console/research", "r"),
    Place("Workflows", "/console/workflows", "w"),
    Place("Tools", "/console/tools", "t"),
    Place("Agents", "/console/agents", "a"),
    Place("Sessions", "/console/sessions", "s"),
    Place("Events", "/console/events", "e"),
    Place("Queue", "/console/queue", "q"),
    Place("Usage", "/console/usage", "u"),
    Place("Settings", "/console/settings", "c"),
)
