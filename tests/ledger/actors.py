"""What other processes do to a ledger in these tests.

They are forked from a server that has imported Ratchet already and has no threads, so that starting one takes a few
milliseconds; each opens the ledger for itself.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from ratchet.kernel import RatchetError, Usage
from ratchet.ledger import Budgets, Ledger, Spender
from ratchet.ledger import usage as spending
from ratchet.ledger.backup import backup, backup_into
from ratchet.ledger.restore import restore
from ratchet.ledger.tables import artifacts as artifact_rows

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])

_NAMED = sa.select(artifact_rows.c.id).where(artifact_rows.c.sha256 == sa.bindparam("wanted"))


@contextlib.contextmanager
def acting(act: Callable[..., None], *arguments: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process that runs `act(pipe, *arguments)`, and this end of its pipe. It is killed when the block ends."""
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=act, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        yield process, here
    finally:
        process.kill()
        process.join()
        here.close()


def place_of(ledger: Ledger) -> tuple[str, Path]:
    """What another process needs to open the same ledger."""
    return ledger.url, ledger.artifacts.root


def say_events(pipe: Connection, url: str, artifacts: Path) -> None:
    """Append one event for each message received, and answer when it is committed."""
    with Ledger.open(url, artifacts) as ledger:
        pipe.send("ready")
        while message := pipe.recv():
            with ledger.write(actor="other") as tx:
                tx.event("said", message=message)
            pipe.send("done")


def append_steadily(pipe: Connection, url: str, artifacts: Path) -> None:
    """Append an event and an artifact again and again, in one transaction each."""
    with Ledger.open(url, artifacts) as ledger:
        pipe.send("ready")
        number = 0
        while True:
            number += 1
            with ledger.write(actor="steady") as tx:
                stored = ledger.artifacts.put(tx, f"content {number}".encode(), name=str(number))
                tx.event("steady", data={"number": number, "artifact": stored.sha256})
            time.sleep(0.002)  # else nobody else ever has a turn on SQLite


def put_steadily(pipe: Connection, url: str, artifacts: Path, seed: int) -> None:
    """Put artifacts of all sizes as fast as possible."""
    chance = random.Random(seed)
    with Ledger.open(url, artifacts) as ledger:
        pipe.send("ready")
        while True:
            content = os.urandom(chance.choice([1, 1000, 300_000, 2_000_000]))
            with ledger.write() as tx:
                ledger.artifacts.put(tx, content, name="random")


def put_same(pipe: Connection, url: str, artifacts: Path, contents: list[bytes], rounds: int) -> None:
    """Put the same contents again and again, and drop the rows at once, so that the collector may take the files."""
    with Ledger.open(url, artifacts) as ledger:
        pipe.send("ready")
        for number in range(rounds):
            content = contents[number % len(contents)]
            with ledger.write() as tx:
                stored = ledger.artifacts.put(
                    tx, content, name="same", pinned=number >= rounds - len(contents)
                )
            # What a row tells of is there as long as the collector is kept out, though the row may be gone by now.
            with ledger.artifacts.held(), ledger.read() as tx:
                if tx.connection.execute(_NAMED, {"wanted": stored.sha256}).first() is not None:
                    assert ledger.artifacts.path(stored.sha256).read_bytes() == content
        pipe.send("done")


def charge_often(
    pipe: Connection, url: str, artifacts: Path, spender: Spender, used: Usage, times: int
) -> None:
    with Ledger.open(url, artifacts) as ledger:
        pipe.send("ready")
        pipe.recv()
        for _ in range(times):
            with ledger.write() as tx:
                spending.charge(tx, spender, used, Budgets(), engine="test")
        pipe.send("done")


def open_ledger(pipe: Connection, url: str, artifacts: Path) -> None:
    """Open a ledger that may not exist yet, at the same time as others."""
    pipe.send("ready")
    pipe.recv()
    try:
        with Ledger.open(url, artifacts) as ledger, ledger.write() as tx:
            tx.event("opened")
        pipe.send("opened")
    except (RatchetError, SQLAlchemyError) as error:
        pipe.send(f"{type(error).__name__}: {error}")


def take_backup(pipe: Connection, url: str, artifacts: Path, target: Path, cpu_seconds: float) -> None:
    with Ledger.open(url, artifacts) as ledger:
        die_after(cpu_seconds)
        backup(ledger, target)
        pipe.send("done")


def put_back(pipe: Connection, url: str, artifacts: Path, source: Path, cpu_seconds: float) -> None:
    with Ledger.open(url, artifacts) as ledger:
        die_after(cpu_seconds)
        restore(ledger, source, force=True)
        pipe.send("done")


def keep_backup(
    pipe: Connection, url: str, artifacts: Path, place: Path, events: Collection[str], at: int
) -> None:
    with Ledger.open(url, artifacts) as ledger:
        die_before(events, at)
        backup_into(ledger, place, keep=1)
        pipe.send("done")


def restore_home(
    pipe: Connection, url: str, artifacts: Path, source: Path, events: Collection[str], at: int
) -> None:
    with Ledger.open(url, artifacts, restoring=True) as ledger:
        die_before(events, at)
        restore(ledger, source, force=True)
        pipe.send("done")


def die_before(events: Collection[str], at: int) -> None:
    """End this process, as `kill -9` does, just before so many of the calls that Python's audit has these names for."""
    seen = itertools.count(1)

    def look(event: str, _arguments: object) -> None:
        if event in events and next(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def die_after(cpu_seconds: float) -> None:
    """Have the kernel end this process after so much work of its own, however busy the machine is."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


def hold_write(pipe: Connection, url: str, artifacts: Path) -> None:
    """Keep a write transaction open until told to end."""
    with Ledger.open(url, artifacts) as ledger, ledger.write():
        pipe.send("ready")
        pipe.recv()


def kill_after(process: BaseProcess, seconds: float) -> None:
    time.sleep(seconds)
    process.kill()
    process.join()


def heard(pipe: Connection, word: str) -> bool:
    """Whether a process that has ended said `word` before."""
    try:
        return bool(pipe.recv() == word)
    except EOFError:
        return False
