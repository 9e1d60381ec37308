"""Transactions that tasks share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from ratchet.files import NewFile
from ratchet.kernel import LedgerUnavailable, Misuse
from ratchet.ledger import EventFilter, Ledger, Transaction
from ratchet.ledger.events import latest
from ratchet.ledger.tables import projects
from ratchet.runtime import GroupCommit


def happened(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        return sorted(each.type for each in latest(tx.connection, where=EventFilter(type="test.*")))


def saying(word: str, seen: list[Transaction] | None = None) -> Callable[[Transaction], str]:
    def say(tx: Transaction) -> str:
        tx.event(f"test.{word}")
        if seen is not None:
            seen.append(tx)
        return word

    return say


def test_what_is_wanted_at_one_moment_is_written_in_one_transaction(ledger: Ledger) -> None:
    seen: list[Transaction] = []

    async def scene() -> list[str]:
        together = GroupCommit(ledger)
        return await asyncio.gather(*(together.write(saying(word, seen)) for word in "abc"))

    assert asyncio.run(scene()) == ["a", "b", "c"]
    assert len({id(tx) for tx in seen}) == 1
    assert happened(ledger) == ["test.a", "test.b", "test.c"]


def test_what_is_wanted_later_is_written_later(ledger: Ledger) -> None:
    seen: list[Transaction] = []

    async def scene() -> list[str]:
        together = GroupCommit(ledger)
        await together.write(saying("a", seen))
        before = happened(ledger)
        await together.write(saying("b", seen))
        return before

    assert asyncio.run(scene()) == ["test.a"]
    assert len({id(tx) for tx in seen}) == 2
    assert happened(ledger) == ["test.a", "test.b"]


def test_one_that_fails_is_told_so_and_the_others_are_written_once(ledger: Ledger) -> None:
    def fail(tx: Transaction) -> None:
        tx.event("test.never")
        raise Misuse("not like this")

    async def scene() -> list[object]:
        together = GroupCommit(ledger)
        return await asyncio.gather(
            together.write(saying("a")),
            together.write(fail),
            together.write(saying("b")),
            return_exceptions=True,
        )

    first, failed, last = asyncio.run(scene())
    assert (first, last) == ("a", "b")
    assert isinstance(failed, Misuse)
    assert happened(ledger) == ["test.a", "test.b"]


def test_one_that_the_database_refuses_takes_nobody_with_it(ledger: Ledger) -> None:
    add = sa.insert(projects)

    def twice(tx: Transaction) -> None:
        tx.connection.execute(add, [{"name": "one", "created_at": 1}] * 2)

    async def scene() -> list[object]:
        together = GroupCommit(ledger)
        return await asyncio.gather(
            together.write(saying("a")), together.write(twice), return_exceptions=True
        )

    written, refused = asyncio.run(scene())
    assert (written, type(refused)) == ("a", exc.IntegrityError)
    assert happened(ledger) == ["test.a"]


def test_one_that_is_cancelled_before_its_turn_is_not_written(ledger: Ledger) -> None:
    async def scene() -> None:
        together = GroupCommit(ledger)
        kept, dropped = (asyncio.create_task(together.write(saying(word))) for word in "ab")
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.wait({kept, dropped})

    asyncio.run(scene())
    assert happened(ledger) == ["test.a"]


def test_where_all_are_cancelled_there_is_no_transaction(ledger: Ledger) -> None:
    class Counting:
        begun = 0

        def write(self) -> AbstractContextManager[Transaction]:
            self.begun += 1
            return ledger.write()

    async def scene(book: Counting) -> None:
        dropped = asyncio.create_task(GroupCommit(book).write(saying("a")))
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.wait({dropped})
        await asyncio.sleep(0.01)

    book = Counting()
    asyncio.run(scene(book))
    assert book.begun == 0


def test_an_error_that_cannot_be_told_leaves_nobody_waiting(ledger: Ledger) -> None:
    def end(_tx: Transaction) -> None:
        raise StopIteration  # which no future takes

    async def scene() -> list[bool]:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        together = GroupCommit(ledger)
        waiting = [asyncio.create_task(together.write(work)) for work in (saying("a"), end, saying("b"))]
        done, _ = await asyncio.wait(waiting, timeout=120)
        return [task in done for task in waiting]

    assert asyncio.run(scene()) == [True, True, True]


def test_files_that_cannot_be_written_are_told_to_all_and_not_tried_again(
    ledger: Ledger, tmp_path: Path
) -> None:
    count = 0

    def refuse(directory: Path) -> None:
        raise OSError(28, "No space left on device", str(directory))

    def spoil(tx: Transaction) -> None:
        nonlocal count
        count += 1
        place = str(tmp_path / "absent")
        tx.add_file(NewFile(f"{place}/name", f"{tmp_path}/temporary", b"x", 0o600, refuse))

    async def scene() -> list[object]:
        together = GroupCommit(ledger)
        return await asyncio.gather(
            together.write(saying("a")), together.write(spoil), return_exceptions=True
        )

    assert [type(each) for each in asyncio.run(scene())] == [LedgerUnavailable] * 2
    assert count == 1
    assert happened(ledger) == []


def test_a_commit_of_which_nobody_knows_is_told_to_all_and_not_tried_again(ledger: Ledger) -> None:
    class Unsure:
        """Commits, and does not hear of it."""

        @contextmanager
        def write(self) -> Iterator[Transaction]:
            with ledger.write() as tx:
                yield tx
            raise LedgerUnavailable("the answer was lost")

    async def scene() -> list[object]:
        together = GroupCommit(Unsure())
        return await asyncio.gather(*(together.write(saying(word)) for word in "ab"), return_exceptions=True)

    assert [type(each) for each in asyncio.run(scene())] == [LedgerUnavailable] * 2
    assert happened(ledger) == ["test.a", "test.b"]


@pytest.mark.parametrize("after", [0, 1])
def test_it_goes_on_after_a_failure(ledger: Ledger, after: int) -> None:
    def fail(_tx: Transaction) -> None:
        raise Misuse("no")

    async def scene() -> str:
        together = GroupCommit(ledger)
        for _ in range(after + 1):
            with pytest.raises(Misuse):
                await together.write(fail)
        return await together.write(saying("a"))

    assert asyncio.run(scene()) == "a"


def test_in_a_thread_what_comes_meanwhile_is_written_in_the_next_transaction_in_its_order(
    ledger: Ledger,
) -> None:
    seen: list[tuple[str, Transaction]] = []
    begun, go_on = threading.Event(), threading.Event()

    def first(tx: Transaction) -> None:
        begun.set()
        assert go_on.wait(60)
        seen.append(("first", tx))

    async def scene() -> None:
        group = GroupCommit(ledger, in_thread=True)
        waiting = [group.add(first)]
        await asyncio.to_thread(begun.wait, 60)
        waiting += [group.add(lambda tx, word=word: seen.append((word, tx))) for word in "abc"]
        assert len(group) == 3
        go_on.set()
        await asyncio.gather(*waiting)

    asyncio.run(scene())
    assert [word for word, _ in seen] == ["first", "a", "b", "c"]
    assert len({id(tx) for _, tx in seen}) == 2


def test_what_waits_when_it_is_closed_is_not_written(ledger: Ledger) -> None:
    async def scene() -> bool:
        group = GroupCommit(ledger)
        waiting = group.add(saying("a"))
        group.close()
        await asyncio.wait({waiting})
        return waiting.cancelled()

    assert asyncio.run(scene())
    assert happened(ledger) == []


def test_a_ledger_that_is_away_for_a_moment_is_tried_again(ledger: Ledger) -> None:
    class Away:
        times = 1

        def write(self) -> AbstractContextManager[Transaction]:
            if self.times:
                self.times -= 1
                raise LedgerUnavailable("not now")
            return ledger.write()

    async def scene() -> str:
        with pytest.raises(LedgerUnavailable):
            await GroupCommit(Away()).write(saying("never"))
        return await GroupCommit(Away(), retries=1).write(saying("a"))

    assert asyncio.run(scene()) == "a"
    assert happened(ledger) == ["test.a"]
