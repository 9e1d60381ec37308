"""Function tools: trusted functions of this process, announced by installed packages.

Nothing is forked for them, so a call costs some microseconds; it also has no limit of memory, and a function that is
not a coroutine cannot be stopped. One that takes long declares `slow: true` and runs in a thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from ratchet.tools.announced import GROUP
from ratchet.tools.bodies import FunctionBody
from ratchet.tools.call import Called, Occasion, ToolFailed, ToolUse
from ratchet.tools.definition import Tool


async def call_function(
    tool: Tool, body: FunctionBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> Called:
    """Raises `ToolFailed`, also for whatever the function raises."""
    function = announced(body.entry)
    given = {**values, "occasion": occasion} if takes_occasion(function) else values
    began = time.perf_counter()
    try:
        if body.extra.get("slow"):
            async with asyncio.timeout(seconds):
                value = await asyncio.to_thread(function, **given)
        else:
            value = function(**given)
        if inspect.isawaitable(value):
            async with asyncio.timeout(seconds):
                value = await value
    except ToolFailed:
        raise
    except TimeoutError as error:
        raise ToolFailed(
            f"tool {tool.id} did not end within {seconds:g} s", use=_use(began), hint="raise its timeout"
        ) from error
    except Exception as error:
        raise ToolFailed(
            f"tool {tool.id} failed: {type(error).__name__}: {error}", use=_use(began)
        ) from error
    return Called(value, _use(began))


@functools.lru_cache(maxsize=1024)
def announced(name: str) -> Callable[..., Any]:
    """The function that a package announces as `name`. Raises `ToolFailed`."""
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = ", ".join(sorted(entry_points(group=GROUP).names)) or "none"
        raise ToolFailed(
            f"there is no function {name!r}; installed packages announce: {known}",
            hint=f"install the package that has it; it announces functions as entry points of {GROUP}",
            final=True,
        )
    try:
        function: Callable[..., Any] = found[0].load()
    except Exception as error:
        raise ToolFailed(
            f"the function {name!r} of {found[0].value} cannot be loaded: {type(error).__name__}: {error}",
            hint="mend or uninstall the package that brings it",
            final=True,
        ) from error
    if not callable(function):
        raise ToolFailed(f"{found[0].value} is not a function", final=True)
    return function


@functools.lru_cache(maxsize=1024)
def takes_occasion(function: Callable[..., Any]) -> bool:
    """Whether a function wants to know on whose behalf it is called, by a keyword-only `occasion`."""
    parameter = inspect.signature(function).parameters.get("occasion")
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def _use(began: float) -> ToolUse:
    return ToolUse(wall_ms=(time.perf_counter() - began) * 1000)
