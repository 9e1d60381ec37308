"""What of the things that a session handles is shown in its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_LONGEST = 4096


def hidden(value: Any, hide: Callable[[str], str]) -> Any:
    """`value` with `hide` applied to every text in it, and no text longer than an event should carry."""
    match value:
        case str():
            return _cut(hide(value))
        case Mapping():
            return {str(key): hidden(each, hide) for key, each in value.items()}
        case list() | tuple():
            return [hidden(each, hide) for each in value]
    return value


def plain(content: str | list[dict[str, Any]] | None) -> str:
    """The text of a tool's result; pictures are only named."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST} more characters)"
