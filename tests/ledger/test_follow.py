import asyncio
import contextlib
import logging
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.ledger import Event, EventFilter, Ledger, follow, follow_async
from ratchet.ledger import events as log
from tests.ledger.actors import acting, place_of, say_events
from tests.ledger.conftest import MakeLedger
from tests.postgres import PostgresServer
from tests.waiting import PATIENCE_SECONDS as PATIENCE

# A follower here looks only when it is woken: what it sees in time came by a ring.
NEVER = 86_400.0
END = "the follower may go"


@contextlib.contextmanager
def following(ledger: Ledger, where: EventFilter | None = None) -> Iterator[queue.Queue[Event]]:
    """A thread that follows from the beginning; what it sees comes through the queue."""
    seen: queue.Queue[Event] = queue.Queue()

    def watch() -> None:
        for event in follow(ledger, 0, where=where, safety_seconds=NEVER):
            if event.message == END:
                return
            seen.put(event)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        with ledger.write() as tx:
            tx.event("job.ended", message=END)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def say(ledger: Ledger, message: str) -> None:
    with ledger.write() as tx:
        tx.event("said", message=message)


def test_a_follower_is_woken_by_its_own_process(ledger: Ledger) -> None:
    with following(ledger) as seen:
        for number in range(10):
            say(ledger, str(number))
            assert seen.get(timeout=PATIENCE).message == str(number)


def test_a_follower_without_inotify_looks_by_itself(ledger: Ledger) -> None:
    if not ledger.url.startswith("sqlite"):
        pytest.skip("PostgreSQL tells by itself")
    program = (
        "import sys; from pathlib import Path; from ratchet.ledger import Ledger, follow;"
        " ledger = Ledger.open(sys.argv[1], Path(sys.argv[2]));"
        f" [print(each.message, flush=True) for each in follow(ledger, 0, safety_seconds={NEVER})]"
    )
    none_left = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" -c "$@"'
    command = ["unshare", "-Ur", "sh", "-c", none_left, sys.executable, program, *map(str, place_of(ledger))]
    say(ledger, "one")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            first = follower.stdout.readline()
            if not first:
                pytest.skip("this kernel lets no user make a namespace")
            say(ledger, "two")
            assert [first, follower.stdout.readline()] == ["one\n", "two\n"]
        finally:
            follower.kill()


def test_a_follower_is_woken_by_another_process_without_polling(ledger: Ledger) -> None:
    with following(ledger) as seen, acting(say_events, *place_of(ledger)) as (_, pipe):
        pipe.recv()
        for number in range(10):
            pipe.send(f"message {number}")
            pipe.recv()
            assert seen.get(timeout=PATIENCE).message == f"message {number}"
        pipe.send("")


def test_a_follower_that_starts_while_others_write_misses_nothing(ledger: Ledger) -> None:
    with acting(say_events, *place_of(ledger)) as (_, pipe):
        pipe.recv()
        for round_ in range(5):
            pipe.send(f"round {round_}")
            events = follow(ledger, 0, safety_seconds=NEVER)
            found = [next(events).message for _ in range(round_ + 1)]
            events.close()
            pipe.recv()
            assert found == [f"round {number}" for number in range(round_ + 1)]


def test_an_async_follower_is_woken_and_can_be_cancelled(ledger: Ledger) -> None:
    async def watch() -> list[str | None]:
        found = []
        async with contextlib.aclosing(follow_async(ledger, 0)) as events:
            async for event in events:
                found.append(event.message)
                if event.message == "last":
                    return found
        raise AssertionError

    async def run() -> list[str | None]:
        task = asyncio.create_task(watch())
        await asyncio.sleep(0.1)
        for message in ("first", "last"):
            await asyncio.to_thread(say, ledger, message)
        found = await asyncio.wait_for(task, PATIENCE)
        endless = asyncio.create_task(watch_for_ever())
        await asyncio.sleep(0.1)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        return found

    async def watch_for_ever() -> None:
        async for _ in follow_async(ledger, 0):
            pass

    assert asyncio.run(run()) == ["first", "last"]


@pytest.mark.parametrize("steps", range(6))
def test_an_async_follower_can_be_cancelled_while_the_bell_rings(ledger: Ledger, steps: int) -> None:
    async def watch(begun: asyncio.Event) -> None:
        async for _ in follow_async(ledger, 0):
            begun.set()

    async def run() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(watch(begun))
        await begun.wait()
        await asyncio.sleep(0.05)
        ledger.bell.ring()
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=PATIENCE)
        assert task.cancelled()

    say(ledger, "first")
    asyncio.run(run())


def test_a_filtered_follower_sees_only_its_own(ledger: Ledger) -> None:
    with following(ledger, EventFilter(type="job.*")) as seen:
        with ledger.write() as tx:
            for type_ in ("run.started", "job.failed", "run.failed", "job.retrying"):
                tx.event(type_)
        assert [seen.get(timeout=PATIENCE).type for _ in range(2)] == ["job.failed", "job.retrying"]
        assert seen.empty()


def test_more_events_than_a_batch_come_at_once_and_in_order(ledger: Ledger) -> None:
    with ledger.write() as tx:
        for number in range(1203):
            tx.event("counted", message=str(number))
    with following(ledger) as seen:
        found = [seen.get(timeout=PATIENCE).message for _ in range(1203)]
    assert found == [str(number) for number in range(1203)]


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_follower_outlives_a_database_that_goes_away_and_comes_back(
    make_ledger: MakeLedger, postgres_server: PostgresServer, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = make_ledger("postgresql")
    with following(ledger) as seen, caplog.at_level(logging.CRITICAL):
        say(ledger, "before")
        assert seen.get(timeout=PATIENCE).message == "before"
        postgres_server.stop(mode)
        time.sleep(0.5)
        postgres_server.start()
        say(ledger, "after")
        assert seen.get(timeout=PATIENCE).message == "after"
        say(ledger, "later")
        assert seen.get(timeout=PATIENCE).message == "later"
    with ledger.read() as tx:
        messages = [event.message for event in log.since(tx.connection, where=EventFilter(type="said"))]
    assert messages == ["before", "after", "later"]


_WITHOUT_WATCHES = 'echo 0 > /proc/sys/user/max_inotify_watches && exec "$@"'
_FOLLOWS = """
import sys, threading
from pathlib import Path
from ratchet.ledger import Ledger, follow

with Ledger.open(f"sqlite:///{sys.argv[1]}", Path(sys.argv[1]).parent / "artifacts") as ledger:
    heard = threading.Event()

    def watch():
        for event in follow(ledger, 0, safety_seconds=86400.0):
            if event.message == "hello":
                heard.set()
                return

    threading.Thread(target=watch, daemon=True).start()
    while not heard.wait(0.2):
        with ledger.write() as tx:
            tx.event("job.ended", message="hello")
print("heard")
"""


def test_a_follower_without_inotify_watches_hears_all_the_same(tmp_path: Path) -> None:
    limited = ["unshare", "--user", "--map-root-user", "sh", "-c", _WITHOUT_WATCHES, "sh"]
    if subprocess.run([*limited, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespace can be made here")
    ran = subprocess.run(
        [*limited, sys.executable, "-c", _FOLLOWS, str(tmp_path / "ledger.db")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "heard"), ran.stderr
    assert "Traceback" not in ran.stderr
