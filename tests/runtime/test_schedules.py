"""Schedules: jobs that come again."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import Ledger
from ratchet.runtime import Runtime, list_jobs, list_schedules, put_schedule, remove_schedule, schedules
from tests.runtime.conftest import eventually
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import marks


def test_a_schedule_fires_once_per_time_however_many_workers_there_are(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    with ledger.write() as tx:
        put_schedule(tx, "every-second", "* * * * * *", "note", {"file": str(tmp_path / "marks")})
    fleet.add()
    fleet.add()
    eventually(lambda: len(marks(tmp_path / "marks")) >= 3, 30)
    with ledger.read() as tx:
        fired = [job.once for job in list_jobs(tx, limit=500)]
        [schedule] = list_schedules(tx)
    assert len(fired) == len(set(fired))
    assert schedule.last_fired_at is not None


def test_a_paused_schedule_does_not_fire_and_a_removed_one_is_gone(
    fleet: Fleet, ledger: Ledger, runtime: Runtime, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    with ledger.write() as tx:
        put_schedule(tx, "every-second", "* * * * * *", "note", {"file": str(file)})
        schedules.set_schedule_paused(tx, "every-second", True)
    runtime.apply_schedules()
    fleet.add()
    time.sleep(3)
    assert marks(file) == []
    with ledger.write() as tx:
        schedules.set_schedule_paused(tx, "every-second", False)
    runtime.apply_schedules()
    eventually(lambda: len(marks(file)) >= 1, 30)
    with ledger.write() as tx:
        remove_schedule(tx, "every-second")
    runtime.apply_schedules()
    with ledger.read() as tx:
        assert list_schedules(tx) == []
    with pytest.raises(NotFound), ledger.write() as tx:
        remove_schedule(tx, "every-second")


@pytest.mark.parametrize(
    ("cron", "timezone", "words"),
    [
        ("often", "UTC", "not a cron expression"),
        ("61 * * * *", "UTC", "not a cron expression"),
        ("0 0 31 2 *", "UTC", "never happens"),
        ("0 0 0 1 1 * 2020", "UTC", "never happens"),
        ("* * * * *", "Mars/Olympus", "no time zone"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(
    ledger: Ledger, cron: str, timezone: str, words: str
) -> None:
    with pytest.raises(Misuse, match=words), ledger.write() as tx:
        put_schedule(tx, "impossible", cron, "note", timezone=timezone)


def test_after_a_clock_that_jumped_the_missed_times_fire_once(ledger: Ledger) -> None:
    """Every minute of the lost day is delivered; only the last one still counts."""
    with ledger.write() as tx:
        put_schedule(tx, "minutely", "* * * * *", "note")
    now = datetime(2030, 1, 2, 12, 0, 45, tzinfo=UTC)
    moments = [now - timedelta(minutes=minutes, seconds=45) for minutes in range(1440, -1, -1)]
    with ledger.write() as tx:
        fired = [each for each in moments if schedules.due(tx, "minutely", each.timestamp(), now.timestamp())]
    assert fired == moments[-1:]
