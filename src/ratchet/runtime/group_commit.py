"""Group commit: what tasks of one event loop want to write at the same moment is written in one transaction.

To begin and to commit one costs as much as what a small one is for, and a wait for the disk more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy import exc

from ratchet.kernel import LedgerUnavailable, Misuse

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

T = TypeVar("T")
# As which a row that must not be, and a value that does not fit, come out of a transaction.
_REFUSED = (exc.IntegrityError, Misuse)
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Wanted:
    work: Callable[[Transaction], Any]
    answer: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Failed:
    """`undone` if nothing of the transaction was written for certain."""

    error: Exception
    undone: bool


class Writes(Protocol):
    """Whose transactions they are: a job's, or a ledger's."""

    def write(self) -> AbstractContextManager[Transaction]: ...


class GroupCommit:
    """Shares the transactions of `book` among the tasks of one event loop, one transaction at a time.

    With `in_thread` they are written in a thread, and what comes meanwhile waits for the next one. A ledger that is
    unavailable is tried again so many `retries`: only for work that notices if it was written before.
    """

    def __init__(self, book: Writes, *, in_thread: bool = False, retries: int = 0) -> None:
        self._book = book
        self._in_thread = in_thread
        self._retries = retries
        self._waiting: list[_Wanted] = []
        self._writer: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many wait for the next transaction."""
        return len(self._waiting)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Do `work` in a transaction, as `Ledger.write` has it, with whatever others want to write just now.

        Raises what `work` does, and then nothing of it is written. It must change nothing but the transaction: when
        somebody else's work fails, nothing is written at first, and each is done again by itself. Who is cancelled
        while it waits may find it written or not.
        """
        return await self.add(work)

    def add(self, work: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """As `write`, without waiting. Work is done in the order in which it was added."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wanted(work, answer))
        self._start()
        return answer

    def close(self) -> None:
        """Write nothing more of what waits."""
        for each in self._waiting:
            each.answer.cancel()

    def _start(self) -> None:
        if self._waiting and (self._writer is None or self._writer.done()):
            self._writer = asyncio.get_running_loop().create_task(self._write_all())
            # Whatever it raises, those who came meanwhile have their turn.
            self._writer.add_done_callback(lambda _: self._start())

    async def _write_all(self) -> None:
        # After one more turn of the loop: whoever hears of something in it may have something to write as well.
        await asyncio.sleep(0)
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            wanted = [each for each in waiting if not each.answer.cancelled()]
            try:
                if wanted and not await self._written(wanted):
                    for each in wanted:
                        await self._written([each])
            finally:
                # Whatever has gone wrong here, nobody waits for ever.
                for each in wanted:
                    each.answer.cancel()

    async def _written(self, wanted: Sequence[_Wanted]) -> bool:
        """Write and answer. False if one of several has failed, so that nothing is written and nobody answered."""
        done = await self._committed(wanted)
        if isinstance(done, _Failed):
            # Of a commit that fails in another way nobody knows whether it was one: that is not done again.
            if done.undone and len(wanted) > 1:
                return False
            for each in wanted:
                if not each.answer.done():
                    each.answer.set_exception(done.error)
        else:
            for each, answer in zip(wanted, done, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)
        return True

    async def _committed(self, wanted: Sequence[_Wanted]) -> list[Any] | _Failed:
        for _ in range(self._retries):
            done = await self._tried(wanted)
            if not (isinstance(done, _Failed) and isinstance(done.error, LedgerUnavailable)):
                return done
            await asyncio.sleep(_RETRY_SECONDS)
        return await self._tried(wanted)

    async def _tried(self, wanted: Sequence[_Wanted]) -> list[Any] | _Failed:
        return await asyncio.to_thread(self._commit, wanted) if self._in_thread else self._commit(wanted)

    def _commit(self, wanted: Sequence[_Wanted]) -> list[Any] | _Failed:
        failed = False
        try:
            with self._book.write() as tx:
                try:
                    answers = [each.work(tx) for each in wanted]
                except Exception:
                    failed = True
                    raise
        except Exception as error:  # noqa: BLE001 - it is raised where the work was handed in
            return _Failed(error, undone=failed or isinstance(error, _REFUSED))
        return answers
