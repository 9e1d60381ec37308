"""Small functions that every workflow may call, marked as only computing with what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def pure(function: _F) -> _F:
    """Mark a function tool that only looks at what it is given and changes nothing.

    Doing it twice does no harm, so the steps that need its result need not wait until that is on disk.
    """
    function.pure = True  # type: ignore[attr-defined]
    return function


def is_pure(function: Callable[..., Any]) -> bool:
    return bool(getattr(function, "pure", False))


@pure
def identity(value: Any) -> Any:
    """Give back the value as it is."""
    return value


@pure
def pick(value: Any, path: str) -> Any:
    """Take one part out of a value, such as `rows.0.name` for the name in the first of its rows."""
    found = value
    for part in path.split("."):
        if isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, dict) and part in found:
            found = found[part]
        else:
            raise ValueError(f"there is no {part!r} in the value, as {path!r} asks for")
    return found


@pure
def concat(parts: Sequence[Any], separator: str = "") -> str:
    """Put texts together, one after the other with a separator between them."""
    return separator.join(part if isinstance(part, str) else str(part) for part in parts)
