"""Async work, done for code that is not async."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def finished(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `work` returns, once it has. Inside a running event loop it is done by a thread of its own."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(work())).result()
