"""Values and texts of programs, no longer than a page can show."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from ratchet.server.fields import Json

LONGEST = 20_000
_SENDABLE: TypeAdapter[Any] = TypeAdapter(Json)


def cut(value: Any, longest: int = LONGEST) -> dict[str, Any]:
    """A value as JSON over several lines: its beginning, how long all of it is, and whether some was left out."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except RecursionError:
        text = "a value that is too deep to be shown"
    return cut_text(text, longest)


def cut_text(text: str, longest: int = LONGEST) -> dict[str, Any]:
    """The beginning of a text that nobody has checked."""
    shown = text[:longest].encode("utf-8", "replace").decode()
    return {"text": shown, "characters": len(text), "is_cut": len(text) > longest}


def clean(value: Any) -> Any:
    """A value from anywhere that can be sent: without lone surrogates, and what lies very deep as text."""
    return _SENDABLE.validate_python(value)
