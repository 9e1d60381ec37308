"""A home of an earlier Ratchet, with delays and limits that DBOS kept in its own tables, is opened by this one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from ratchet.ledger.database import make_engine
from ratchet.ledger.tables import jobs
from ratchet.runtime import Worker, open_ledger, open_runtime
from tests.runtime.conftest import ended
from tests.runtime.kinds import make_kinds, marks
from tests.runtime.worker_process import load

DBOS = "dbos"


@pytest.mark.soak
def test_jobs_that_waited_in_another_queue_are_done_once_from_the_ledger(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "ratchet.toml").write_text(
        "[queues.narrow]\nconcurrency = 1\n[queues.slow]\nrate_limit = 1\nrate_seconds = 0.1\n"
    )
    numbers = make_earlier_home(database_url, tmp_path / "marks")
    loaded = load(tmp_path, database_url)
    with open_ledger(loaded) as ledger:
        worker = Worker(open_runtime(loaded, ledger, make_kinds()))
        worker.start()
        try:
            statuses = [str(ended(ledger, number).status) for number in numbers]
        finally:
            worker.stop(drain_seconds=0)
        assert statuses == ["finished"] * len(numbers)
        assert Counter(mark.split(":")[0] for mark in marks(tmp_path / "marks")) == dict.fromkeys(
            map(str, numbers), 1
        )
        with ledger.read() as tx:
            tables = sa.inspect(tx.connection).get_table_names(schema=DBOS if tx.on_postgresql else None)
        assert "workflow_status" in tables


def make_earlier_home(url: str, marked: Path) -> list[int]:
    """A database as it was at schema 0007: delivered and not begun, delayed, limited, waiting and running jobs."""
    now = 1
    states = [
        {"status": "queued", "queue": "default", "due_at": now},
        {"status": "scheduled", "queue": "default", "due_at": now},
        {"status": "queued", "queue": "narrow", "due_at": now},
        {"status": "scheduled", "queue": "narrow", "due_at": now, "delivery": 4},
        {"status": "queued", "queue": "slow", "due_at": now},
        {"status": "queued", "queue": "slow", "due_at": now, "key": "k"},
        {"status": "waiting", "queue": "narrow", "due_at": now, "key": "k"},
        {"status": "started", "queue": "narrow", "due_at": now, "attempt": 1, "process_id": "gone"},
    ]
    config = Config()
    config.set_main_option("script_location", "ratchet.ledger:migrations")
    engine = make_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0007")
        postgresql = connection.dialect.name == "postgresql"
        if postgresql:
            connection.execute(sa.text(f"CREATE SCHEMA {DBOS}"))
        place = f"{DBOS}." if postgresql else ""
        connection.execute(sa.text(f"CREATE TABLE {place}workflow_status (workflow_uuid TEXT, status TEXT)"))
        connection.execute(sa.text(f"INSERT INTO {place}workflow_status VALUES ('job-2-1', 'DELAYED')"))
        connection.execute(sa.text("INSERT INTO components (name, version) VALUES ('dbos', '3.3.0')"))
        same = {
            "kind": "note",
            "priority": 5,
            "payload": {"file": str(marked)},
            "attempt": 0,
            "max_attempts": 3,
            "delivery": 1,
            "recoveries": 0,
            "created_at": now,
        }
        for state in states:
            connection.execute(sa.insert(jobs), {**same, **state})
    engine.dispose()
    return list(range(1, len(states) + 1))
