"""Saying that a function only computes."""

from __future__ import annotations

from collections.abc import Callable
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
