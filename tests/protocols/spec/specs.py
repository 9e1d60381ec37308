"""Specs for tests."""

from __future__ import annotations

from typing import Any


def step(id: str, **more: Any) -> dict[str, Any]:
    """A step that is fine as it is."""
    return {
        "id": id,
        "engine_id": None,
        "prompt_ref": f"{id}.md",
        "qa": {"policy": "full"},
        **more,
    }


def protocol(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"steps": list(steps), **more}
