"""Schedules: jobs that come again."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import EventFilter, Ledger, events
from ratchet.ledger.tables import schedules as table
from ratchet.runtime import (
    Job,
    JobStatus,
    Missed,
    Runtime,
    Schedule,
    Worker,
    get_schedule,
    list_jobs,
    list_schedules,
    put_schedule,
    remove_schedule,
)
from ratchet.runtime.claim import queue_due
from ratchet.runtime.schedules import MOST_MISSED, fire, set_schedule_paused
from ratchet.runtime.worker import Clock
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import marks
from tests.waiting import eventually

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2030, 1, 2, 12, tzinfo=UTC).timestamp()


def put(ledger: Ledger, when: str = "* * * * *", seen: float = NOON, **options: object) -> None:
    """A schedule whose times up to `seen` are dealt with."""
    with ledger.write() as tx:
        put_schedule(tx, "regular", when, "note", **options)  # type: ignore[arg-type]
        tx.connection.execute(sa.update(table).values(seen_at=int(seen * 1000)))


def fired(ledger: Ledger, runtime: Runtime, now: float) -> list[float]:
    """The moments that one more look fires, as seconds after noon."""
    with ledger.write() as tx:
        ids = fire(tx, runtime.jobs, "regular", now)
    with ledger.read() as tx:
        jobs = {job.id: job for job in list_jobs(tx, limit=500)}
    return [moment(jobs[job_id]) - NOON for job_id in ids]


def moment(job: Job) -> int:
    assert job.once is not None
    return int(job.once.rsplit(":", 1)[1])


def told(ledger: Ledger, type: str) -> list[str]:
    with ledger.read() as tx:
        return [event.message or "" for event in events.since(tx.connection, where=EventFilter(type=type))]


@pytest.mark.soak
def test_a_schedule_fires_once_per_time_however_many_workers_there_are(
    fleet: Fleet, ledger: Ledger, tmp_path: Path
) -> None:
    with ledger.write() as tx:
        put_schedule(tx, "every-second", "every second", "note", {"file": str(tmp_path / "marks")})
    fleet.add()
    fleet.add()
    eventually(lambda: len(marks(tmp_path / "marks")) >= 3)
    with ledger.read() as tx:
        moments = [moment(job) for job in list_jobs(tx, limit=500)]
        [schedule] = list_schedules(tx)
    assert len(moments) == len(set(moments))
    assert schedule.last_fired_at is not None


@pytest.mark.soak
def test_no_time_is_lost_or_fired_twice_when_a_worker_is_killed_and_nobody_is_there(
    fleet: Fleet, ledger: Ledger, tmp_path: Path
) -> None:
    with ledger.write() as tx:
        put_schedule(
            tx, "every-second", "every second", "note", {"file": str(tmp_path / "marks")}, missed="all"
        )

    def moments() -> list[int]:
        with ledger.read() as tx:
            return sorted(moment(job) for job in list_jobs(tx, limit=500))

    killed = fleet.add()
    eventually(lambda: len(moments()) >= 1)
    fleet.kill(killed)
    eventually(lambda: time.time() > moments()[-1] + 3)
    before = moments()
    fleet.add()
    eventually(lambda: len(moments()) >= len(before) + 3)
    after = moments()
    assert after == list(range(after[0], after[0] + len(after)))
    assert before == after[: len(before)]


def test_a_clock_finds_new_schedules_and_says_when_it_must_look_again(
    ledger: Ledger, runtime: Runtime
) -> None:
    clock = Clock(runtime, "clock")
    assert clock.look(NOON) == 1.0
    put(ledger)
    assert clock.look(NOON + 59.75) == 0.25
    assert clock.look(NOON + 60) == 1.0
    with ledger.read() as tx:
        assert [moment(job) for job in list_jobs(tx)] == [NOON + 60]


def test_one_schedule_that_cannot_fire_does_not_hold_up_the_others(ledger: Ledger, runtime: Runtime) -> None:
    with ledger.write() as tx:
        put_schedule(tx, "a-gone", "every minute", "no.such.kind")
        put_schedule(tx, "b-other", "every minute", "note", queue="gone")
    put(ledger)
    clock = Clock(runtime, "clock")
    clock.look(NOON + 60)
    clock.look(NOON + 61)
    with ledger.read() as tx:
        assert [job.kind for job in list_jobs(tx)] == ["note"]
    first, second = told(ledger, "schedule.failed")
    assert "a-gone: there is no job kind 'no.such.kind'" in first
    assert "b-other: there is no queue 'gone'" in second


def test_five_minutes_after_midnight_is_due_then_and_not_before() -> None:
    midnight = datetime(2030, 1, 1, tzinfo=UTC)
    seen = int(midnight.timestamp() * 1000)
    schedule = Schedule(
        name="regular",
        cron="*/5 * * * *",
        words=None,
        timezone="UTC",
        kind="note",
        queue="default",
        key=None,
        payload={},
        priority=5,
        missed=Missed.ONCE,
        paused=False,
        created_at=seen,
        last_fired_at=None,
        seen_at=seen,
    )
    assert schedule.due((midnight + timedelta(minutes=4, seconds=59)).timestamp()) == []
    assert schedule.due((midnight + timedelta(minutes=5)).timestamp()) == [midnight + timedelta(minutes=5)]


def test_a_time_is_fired_by_the_first_who_looks(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger)
    assert fired(ledger, runtime, NOON + 59.9) == []
    assert fired(ledger, runtime, NOON + 60) == [60]
    assert fired(ledger, runtime, NOON + 60) == []
    assert fired(ledger, runtime, NOON + 120.5) == [120]
    with ledger.read() as tx:
        assert get_schedule(tx, "regular").last_fired_at == (NOON + 120) * 1000


@pytest.mark.parametrize(
    ("missed", "moments"),
    [
        ("once", [3600]),
        ("skip", []),
        ("all", [3600 - 60 * number for number in range(MOST_MISSED - 1, -1, -1)]),
    ],
)
def test_what_passed_while_nobody_was_there_fires_as_the_policy_says(
    ledger: Ledger, runtime: Runtime, missed: str, moments: list[int]
) -> None:
    put(ledger, missed=missed)
    assert fired(ledger, runtime, NOON + 3659) == moments
    assert fired(ledger, runtime, NOON + 3659) == []
    assert fired(ledger, runtime, NOON + 3665) == [3660]
    assert told(ledger, "schedule.missed") == ["regular"]


def test_jobs_for_missed_times_start_in_the_order_of_the_times(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger, missed="all")
    fired(ledger, runtime, NOON + 300)
    with ledger.read() as tx:
        by_number = sorted(list_jobs(tx), key=lambda job: job.id)
    assert [moment(job) - NOON for job in by_number] == [60, 120, 180, 240, 300]


def test_a_year_of_seconds_is_caught_up_with_at_once(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger, "every second")
    assert fired(ledger, runtime, NOON + 365 * 86400) == [365 * 86400]


def test_a_schedule_that_rests_misses_nothing(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger, "every hour", seen=time.time() - 7200, missed="all")
    with ledger.write() as tx:
        set_schedule_paused(tx, "regular", True)
    assert fired(ledger, runtime, time.time()) == []
    with ledger.write() as tx:
        set_schedule_paused(tx, "regular", False)
    assert fired(ledger, runtime, time.time()) == []
    assert fired(ledger, runtime, time.time() + 3600)


def test_resuming_what_does_not_rest_forgets_nothing(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger, "every hour", seen=time.time() - 7200)
    with ledger.write() as tx:
        set_schedule_paused(tx, "regular", False)
    assert len(fired(ledger, runtime, time.time())) == 1


def test_a_schedule_set_again_keeps_what_it_missed_unless_its_times_have_changed(
    ledger: Ledger, runtime: Runtime
) -> None:
    put(ledger, "every hour", seen=time.time() - 7200)
    with ledger.write() as tx:
        put_schedule(tx, "regular", "hourly", "note", {"new": True})
    assert len(fired(ledger, runtime, time.time())) == 1
    put(ledger, "every hour", seen=time.time() - 7200)
    with ledger.write() as tx:
        put_schedule(tx, "regular", "every 2 hours", "note")
    assert fired(ledger, runtime, time.time()) == []


def test_a_clock_that_was_wrong_does_not_silence_a_schedule(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger, seen=NOON + 365 * 86400)
    clock = Clock(runtime, "clock")
    clock.look(NOON)
    assert fired(ledger, runtime, NOON + 60) == [60]


def test_a_clock_that_goes_back_a_little_fires_nothing_twice(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger)
    assert fired(ledger, runtime, NOON + 60) == [60]
    assert fired(ledger, runtime, NOON + 30) == []
    assert fired(ledger, runtime, NOON + 61) == []


@pytest.mark.parametrize(
    ("night", "moment"),
    [
        (datetime(2026, 3, 29, tzinfo=BERLIN), "2026-03-29T01:00:00+00:00"),
        (datetime(2026, 10, 25, tzinfo=BERLIN), "2026-10-25T00:30:00+00:00"),
    ],
    ids=["an hour left out", "an hour twice"],
)
def test_half_past_two_comes_once_in_a_night_in_which_the_clocks_are_set(
    ledger: Ledger, runtime: Runtime, night: datetime, moment: str
) -> None:
    start = night.timestamp()
    put(ledger, "every day at 2:30", seen=start, timezone="Europe/Berlin", missed="all")
    looks = [fired(ledger, runtime, start + 600 * number) for number in range(6 * 8)]
    [found] = [each for look in looks for each in look]
    assert datetime.fromtimestamp(NOON + found, UTC).isoformat() == moment


def test_jobs_of_a_schedule_have_its_priority_queue_key_and_payload(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger, priority=2, key="k", payload={"depth": 3})
    fired(ledger, runtime, NOON + 60)
    with ledger.read() as tx:
        [job] = list_jobs(tx)
        schedule = get_schedule(tx, "regular")
    assert (job.priority, job.key, job.payload, job.queue) == (2, "k", {"depth": 3}, "default")
    assert (schedule.priority, schedule.background) == (2, False)


def test_a_schedule_remembers_how_it_was_said(ledger: Ledger) -> None:
    put(ledger, "every  weekday at 9am", timezone="Europe/Berlin")
    with ledger.read() as tx:
        schedule = get_schedule(tx, "regular")
    assert (schedule.cron, schedule.words) == ("0 9 * * 1-5", "every weekday at 9am")
    assert schedule.meaning == "every weekday at 09:00"
    assert [each.isoformat() for each in schedule.upcoming(NOON, 3)] == [
        "2030-01-03T09:00:00+01:00",
        "2030-01-04T09:00:00+01:00",
        "2030-01-07T09:00:00+01:00",
    ]
    put(ledger, "0 9 * * 1-5")
    with ledger.read() as tx:
        assert get_schedule(tx, "regular").words is None


def test_a_removed_schedule_is_gone(ledger: Ledger, runtime: Runtime) -> None:
    put(ledger)
    with ledger.write() as tx:
        remove_schedule(tx, "regular")
    assert fired(ledger, runtime, NOON + 60) == []
    with ledger.read() as tx:
        assert list_schedules(tx) == []
    for act in (remove_schedule, lambda tx, name: set_schedule_paused(tx, name, True)):
        with pytest.raises(NotFound), ledger.write() as tx:
            act(tx, "regular")


@pytest.mark.parametrize(
    ("when", "options", "words"),
    [
        ("often", {}, "'often' says nothing"),
        ("61 * * * *", {}, "not a cron expression"),
        ("0 0 31 2 *", {}, "never happens"),
        ("0 0 0 1 1 * 2020", {}, "never happens"),
        ("* * * * *", {"timezone": "Mars/Olympus"}, "no time zone"),
        ("* * * * *", {"missed": "sometimes"}, "'sometimes' says not what"),
        ("* * * * *", {"priority": 10}, "priority 10 is out of range"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(
    ledger: Ledger, when: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Misuse, match=words), ledger.write() as tx:
        put_schedule(tx, "impossible", when, "note", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_worker_whose_clock_is_hours_ahead_fires_and_starts_nothing_early(
    ledger: Ledger, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a fleet the time is that of the database."""
    with ledger.write() as tx:
        put_schedule(tx, "hourly", "0 * * * *", "note")
        runtime.enqueue(tx, "note", delay_seconds=3600)
        right = tx.now
    real, ahead = time.time_ns, 5 * 3600
    monkeypatch.setattr(time, "time_ns", lambda: real() + ahead * 10**9)
    monkeypatch.setattr(time, "time", lambda: real() / 10**9 + ahead)
    # As a worker does that starts with a wrong clock, and one whose clock is set while it works.
    with Ledger.open(ledger.url, ledger.artifacts.root) as opened, opened.write() as tx:
        assert abs(tx.now - right) < 600_000
        assert queue_due(tx) is not None
    worker = Worker(runtime)
    worker.start()
    worker.stop(0)
    assert abs(ledger.now_ms() - right) < 600_000
    with ledger.read() as tx:
        assert [job.status for job in list_jobs(tx)] == [JobStatus.SCHEDULED]
        assert get_schedule(tx, "hourly").last_fired_at is None
