"""One job being done: its handler under supervision."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import Executor, Future
from enum import Enum
from typing import TYPE_CHECKING, Any

from ratchet.observe import logs, tracing

if TYPE_CHECKING:
    from ratchet.runtime.context import JobContext
    from ratchet.runtime.kinds import Handler

# How long a cancelled handler may take to clean up before it is left behind.
GRACE_SECONDS = 10.0


class Why(Enum):
    """Why a running job is ended from outside."""

    STOPPED = "stopped"
    DRAINED = "drained"
    SUPERSEDED = "superseded"
    GAVE_WAY = "gave way"


class Ended(Exception):
    """The handler was ended from outside."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class TimedOut(Exception):
    """The handler took longer than its job may."""


class Running:
    """A handler at work on the worker's event loop. `end` may be called from any thread, once or more."""

    def __init__(self, context: JobContext, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self.context = context
        self._loop = loop
        self._threads = threads
        self._end: asyncio.Future[Why] = loop.create_future()
        self._work: asyncio.Future[Any] | None = None

    def start(self, handler: Handler, timeout_seconds: float | None) -> Future[Any]:
        """Begin. The future holds the handler's result, or raises its error, `Ended` or `TimedOut`."""
        return asyncio.run_coroutine_threadsafe(self._supervise(handler, timeout_seconds), self._loop)

    def end(self, why: Why) -> None:
        def resolve() -> None:
            if not self._end.done():
                self._end.set_result(why)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
            self._loop.call_soon_threadsafe(resolve)

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call once the handler has really returned, which may be after its job ended."""
        work = self._work
        if work is None or work.done():
            call()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the worker with it
                self._loop.call_soon_threadsafe(work.add_done_callback, lambda _: call())

    async def _supervise(self, handler: Handler, timeout_seconds: float | None) -> Any:
        job = self.context.job
        with (
            logs.bind(job_id=job.id, run_id=job.run_id, request_id=job.request_id),
            tracing.span("job", kind=job.kind, attempt=job.attempt),
        ):
            self._work = asyncio.ensure_future(self._call(handler))
            await asyncio.wait(
                {self._work, self._end}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if self._work.done():
                return self._work.result()
            self.context.end()
            self._work.cancel()
            await asyncio.wait({self._work}, timeout=GRACE_SECONDS)
            if self._work.done() and not self._work.cancelled():
                self._work.exception()  # looked at, so that it is not reported as forgotten
            if self._end.done():
                raise Ended(self._end.result())
            raise TimedOut(f"it took longer than {timeout_seconds:g} s")

    async def _call(self, handler: Handler) -> Any:
        try:
            if inspect.iscoroutinefunction(handler):
                return await handler(self.context)
            plain = functools.partial(contextvars.copy_context().run, handler, self.context)
            # Shielded: a thread cannot be cancelled, so `when_gone` must wait for its real end.
            return await asyncio.shield(self._loop.run_in_executor(self._threads, plain))
        except (SystemExit, KeyboardInterrupt) as error:
            # Let through, it would end the loop and with it every other job of this worker.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error
