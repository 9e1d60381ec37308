"""The versions of an agent as a graph: what each was made from, and which one is current."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.server.console.drawing.graph import Drawing, Node, draw


def draw_versions(url: str, versions: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Versions as a page of them has them, newest first; strong are the current one and those that led to it."""
    if not versions:
        return None
    oldest_first = versions[::-1]
    return draw(
        [
            Node(
                each["commit"],
                f"{each['version']}  {each['commit'][:10]}",
                _state(each),
                note=_short(f"current · {each['summary']}" if each["is_current"] else each["summary"] or ""),
                href=f"{url}#version-{each['id']}",
            )
            for each in oldest_first
        ],
        [(each["parent"], each["commit"]) for each in oldest_first if each["parent"]],
        strong=frozenset(each["commit"] for each in versions if each["on_line"]),
    )


def _state(version: Mapping[str, Any]) -> str:
    if version["status"] == "quarantined":
        return "quarantined"
    if version["is_current"]:
        return "current"
    return "led_here" if version["on_line"] else "variant"


def _short(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:29]}…"
