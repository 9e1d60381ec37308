"""Being cancelled inside a library's task group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancelled_if_asked() -> Iterator[None]:
    """Ends as cancelled if the task was told to meanwhile.

    Task groups raise what went wrong in that moment in place of the cancellation, and whoever tries again after errors
    would do so for ever.
    """
    task = asyncio.current_task()
    assert task is not None
    asked_before = task.cancelling()
    try:
        yield
    except Exception as error:
        if task.cancelling() > asked_before:
            raise asyncio.CancelledError from error
        raise
