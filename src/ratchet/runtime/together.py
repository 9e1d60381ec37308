"""Transactions that tasks of one event loop share.

To begin and to commit one costs as much as what a small one is for, and a wait for the disk more than that. So what
several tasks want to write at the same moment is written together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy import exc

from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

T = TypeVar("T")
# As which a row that must not be, and a value that does not fit, come out of a transaction.
_REFUSED = (exc.IntegrityError, Misuse)


@dataclass(frozen=True, slots=True)
class _Wanted:
    work: Callable[[Transaction], Any]
    answer: asyncio.Future[Any]


class Writes(Protocol):
    """Whose transactions they are: a job's, or a ledger's."""

    def write(self) -> AbstractContextManager[Transaction]: ...


class Together:
    """What is written for one job, in the event loop in which it runs."""

    def __init__(self, job: Writes) -> None:
        self._job = job
        self._waiting: list[_Wanted] = []

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Do `work` in a transaction, as `Ledger.write` has it, with whatever others want to write just now.

        Raises what `work` does, and then nothing of it is written. It must change nothing but the transaction: when
        somebody else's work fails, nothing is written at first, and each is done again by itself. Who is cancelled
        while it waits may find it written or not.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Wanted(work, answer))
        if len(self._waiting) == 1:
            # After one more turn of the loop: whoever hears of something in it may have something to write as well.
            loop.call_soon(loop.call_soon, self._write)
        return await answer

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        wanted = [each for each in waiting if not each.answer.cancelled()]
        try:
            if wanted and not self._written(wanted):
                for each in wanted:
                    self._written([each])
        finally:
            # Whatever has gone wrong here, nobody waits for ever.
            for each in wanted:
                each.answer.cancel()

    def _written(self, wanted: Sequence[_Wanted]) -> bool:
        """Write and answer. False if one of several has failed, so that nothing is written and nobody answered."""
        failed = False
        try:
            with self._job.write() as tx:
                try:
                    answers = [each.work(tx) for each in wanted]
                except Exception:
                    failed = True
                    raise
        except Exception as error:  # noqa: BLE001 - it is raised where the work was handed in
            # A server tells of some statements only when it is to commit. Of any other commit that fails nobody knows
            # whether it was one: that is not done again.
            if (failed or isinstance(error, _REFUSED)) and len(wanted) > 1:
                return False
            for each in wanted:
                if not each.answer.done():
                    each.answer.set_exception(error)
        else:
            for each, answer in zip(wanted, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)
        return True
