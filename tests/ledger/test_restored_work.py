"""Moving from one database to another: the work continues where it was."""

from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.ledger import Ledger
from ratchet.ledger.backup import backup
from ratchet.ledger.restore import restore
from ratchet.ledger.tables import jobs
from ratchet.runtime import Worker, open_runtime
from tests.ledger.conftest import MakeLedger
from tests.runtime.conftest import ended
from tests.runtime.kinds import make_kinds, marks
from tests.runtime.worker_process import load


@pytest.mark.soak
@pytest.mark.parametrize(("source_kind", "target_kind"), [("sqlite", "postgresql"), ("postgresql", "sqlite")])
def test_jobs_of_every_state_are_done_once_after_a_restore(
    make_ledger: MakeLedger, tmp_path: Path, source_kind: str, target_kind: str
) -> None:
    source, target = make_ledger(source_kind), make_ledger(target_kind)
    marked = tmp_path / "marks"
    numbers = enqueue(source, tmp_path, marked)
    backup(source, tmp_path / "b")
    restore(target, tmp_path / "b")
    runtime = open_runtime(load(tmp_path, target.url), target, make_kinds())
    worker = Worker(runtime)
    worker.start()
    try:
        statuses = [str(ended(target, number).status) for number in numbers]
    finally:
        worker.stop(drain_seconds=0)
    assert statuses == ["finished"] * len(numbers)
    assert Counter(mark.split(":")[0] for mark in marks(marked)) == dict.fromkeys(map(str, numbers), 1)


def enqueue(ledger: Ledger, home: Path, marked: Path) -> list[int]:
    """Jobs that are ready, that wait for their time, for their key, and one that a process had when it vanished."""
    runtime = open_runtime(load(home, ledger.url), ledger, make_kinds())
    with ledger.write() as tx:
        add = runtime.enqueue
        payload = {"file": str(marked)}
        ready = add(tx, "note", payload)
        later = add(tx, "note", payload, delay_seconds=0.5)
        started = add(tx, "note", payload, key="k")
        waiting = add(tx, "note", payload, key="k")
        change = sa.update(jobs).where(jobs.c.id == sa.bindparam("number"))
        tx.connection.execute(
            change.values(status="started", process_id="gone", attempt=1), {"number": started}
        )
        tx.connection.execute(change.values(status="waiting"), {"number": waiting})
    return [number for number in (ready, later, started, waiting) if number is not None]
