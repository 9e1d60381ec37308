import os
import threading

import pytest
import sqlalchemy as sa

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import Ledger
from ratchet.ledger.check import check, vacuum
from ratchet.ledger.tables import events, processes
from tests.ledger.actors import acting, append_steadily, hold_write, place_of
from tests.ledger.conftest import MakeLedger


def fill(ledger: Ledger) -> None:
    with ledger.write() as tx:
        for _ in range(200):
            tx.event("long", data={"text": os.urandom(5000).hex()})
        ledger.artifacts.put(tx, b"x" * 100_000, name="old")
    with ledger.write() as tx:
        tx.connection.execute(sa.delete(events))


def at_work(ledger: Ledger, process_id: str) -> None:
    row = dict.fromkeys(("pid", "slots", "busy", "beat", "started_at", "beat_at"), 0)
    row |= dict.fromkeys(("role", "host", "identity", "version"), "")
    with ledger.write() as tx:
        tx.connection.execute(sa.insert(processes).values(id=process_id, state="alive", **row))


def test_room_that_is_no_longer_used_is_given_back(ledger: Ledger) -> None:
    fill(ledger)
    for _, file in ledger.artifacts.stored():
        os.utime(file, (0, 0))
    report = vacuum(ledger, grace_seconds=60, expire_before=2**50)
    assert (report.artifacts.rows, report.artifacts.files, report.artifacts.bytes) == (1, 1, 100_000)
    assert report.in_the_way == ()
    assert report.bytes == report.artifacts.bytes + report.database_bytes
    if ledger.path is not None:
        assert report.database_bytes > 1_000_000
    assert check(ledger).ok


def test_nothing_that_is_used_is_taken(ledger: Ledger) -> None:
    with ledger.write() as tx:
        kept = ledger.artifacts.put(tx, b"kept", name="k")
        tx.event("kept")
    vacuum(ledger, grace_seconds=0)
    assert ledger.artifacts.read(kept.sha256) == b"kept"
    with ledger.read() as tx:
        assert tx.connection.execute(sa.text("SELECT count(*) FROM events")).scalar() == 1


def test_it_works_while_others_write(ledger: Ledger) -> None:
    with acting(append_steadily, *place_of(ledger)) as (process, pipe):
        pipe.recv()
        for _ in range(3):
            vacuum(ledger, grace_seconds=60)
        assert process.is_alive()
    assert check(ledger).ok


def test_a_reader_that_keeps_the_log_from_shrinking_is_named(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("sqlite")
    fill(ledger)
    at_work(ledger, "host-1-abc")
    reading, done = threading.Event(), threading.Event()

    def read() -> None:
        with ledger.read() as tx:
            tx.connection.execute(sa.text("SELECT count(*) FROM events")).scalar()
            reading.set()
            done.wait(60)

    thread = threading.Thread(target=read)
    thread.start()
    reading.wait()
    report = vacuum(ledger, grace_seconds=60, patience_seconds=0.2)
    done.set()
    thread.join()
    assert report.in_the_way == ("host-1-abc",)


def test_a_writer_that_does_not_let_go_is_named(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("sqlite")
    at_work(ledger, "host-2-def")
    with acting(hold_write, *place_of(ledger)) as (_, pipe):
        pipe.recv()
        with pytest.raises(LedgerUnavailable, match="cannot be compacted; at work: host-2-def"):
            vacuum(ledger, grace_seconds=60, patience_seconds=0.2)
