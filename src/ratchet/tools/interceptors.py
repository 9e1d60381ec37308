"""What is asked before every call of a tool and told after it: guards, audits, measurements of one's own.

A package announces one as an entry point of `ratchet.interceptors`. They are asked in the order of their `place` and
told in the opposite one, so that what came first has the last word.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from importlib.metadata import entry_points
from typing import Any, Protocol

from ratchet.tools.call import Called, ToolFailed
from ratchet.tools.definition import Tool

GROUP = "ratchet.interceptors"


class Place(IntEnum):
    FIRST = 0
    NORMAL = 50
    LAST = 100


class Interceptor(Protocol):
    """Either may raise `ToolFailed`: before the call it is not made, after it the answer is not used."""

    @property
    def place(self) -> int: ...

    def before(self, tool: Tool, values: Mapping[str, Any]) -> None: ...

    def after(self, tool: Tool, values: Mapping[str, Any], outcome: Called | ToolFailed) -> None: ...


@functools.cache
def announced_interceptors() -> tuple[Interceptor, ...]:
    """Those of the installed packages. Looked for once. Raises `ToolFailed`: a guard that is broken lets nothing by."""
    found: list[Interceptor] = []
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            found.append(point.load()())
        except Exception as error:
            raise ToolFailed(
                f"the interceptor {point.value} cannot be loaded: {type(error).__name__}: {error}",
                hint="mend or uninstall the package that brings it",
                final=True,
            ) from error
    return tuple(sorted(found, key=lambda each: each.place))


async def intercepted(
    chain: Sequence[Interceptor],
    tool: Tool,
    values: Mapping[str, Any],
    call: Callable[[], Awaitable[Called]],
) -> Called:
    """Make the call if nobody objects. Whoever was asked before is told after, also of a call that failed."""
    asked: list[Interceptor] = []
    outcome: Called | ToolFailed
    try:
        for each in chain:
            asked.append(each)
            _heard(each, functools.partial(each.before, tool, values))
        outcome = await call()
    except ToolFailed as failed:
        outcome = failed
    for each in reversed(asked):
        try:
            _heard(each, functools.partial(each.after, tool, values, outcome))
        except ToolFailed as failed:
            outcome = failed
    if isinstance(outcome, ToolFailed):
        raise outcome
    return outcome


def _heard(interceptor: Interceptor, say: Callable[[], None]) -> None:
    try:
        say()
    except ToolFailed:
        raise
    except Exception as error:
        name = type(interceptor).__name__
        raise ToolFailed(
            f"the interceptor {name} broke: {type(error).__name__}: {error}", final=True
        ) from error
