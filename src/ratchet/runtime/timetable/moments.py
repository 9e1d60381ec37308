"""The moments of a cron expression in a time zone.

Where clocks are set, a time of day still comes once a day: one that does not exist comes when the clocks have gone
forward, and one that comes twice counts the first time. A schedule for every hour goes on in both hours.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from ratchet.kernel import Misuse
from ratchet.runtime.timetable.cron import Cron, parse_cron

_DAY = timedelta(days=1)
# What does not happen for so long never will: the longest pause is that of the 29th of February.
_MOST_YEARS = 50


@dataclass(frozen=True, slots=True)
class Timetable:
    """A cron expression and the zone whose clocks it is about. Raises `Misuse` when asked for what cannot be."""

    cron: str
    timezone: str = "UTC"

    def after(self, moment: float) -> datetime:
        """The next moment after `moment` (seconds since 1970). Raises `Misuse` when it never happens again."""
        return _next(self.cron, self.timezone, int(moment))

    def upcoming(self, moment: float, count: int) -> list[datetime]:
        """The next `count` moments, or as many as there are still."""
        found: list[datetime] = []
        try:
            while len(found) < count:
                found.append(self.after(found[-1].timestamp() if found else moment))
        except Misuse:
            if not found:
                raise
        return found

    def within(self, after: float, until: float, most: int) -> list[datetime]:
        """The last `most` moments later than `after` and not later than `until`, in order."""
        # From ever further back: a long time holds many moments, and only its end is wanted.
        reach = float(most)
        while True:
            start = max(after, until - reach)
            passed = itertools.takewhile(lambda moment: moment.timestamp() <= until, self._from(start))
            found = deque((moment for moment in passed if moment.timestamp() > start), maxlen=most)
            if len(found) == most or start == after:
                return list(found)
            reach *= 4

    def _from(self, moment: float) -> Iterator[datetime]:
        return _moments(self.cron, self.timezone, int(moment))


def check_cron(cron: str) -> None:
    """Raise `Misuse` unless `cron` is a cron expression."""
    parse_cron(cron)


# A clock that waits for a moment asks for it again and again.
@functools.lru_cache(maxsize=4096)
def _next(cron: str, timezone: str, after: int) -> datetime:
    found = next(_moments(cron, timezone, after), None)
    if found is None:
        raise Misuse(f"the schedule {cron!r} never happens again: it lies in the past or on no date")
    return found


def _moments(cron: str, timezone: str, after: int) -> Iterator[datetime]:
    """The moments later than `after`, in order, until there are no more."""
    zone, wanted = _zone(timezone), parse_cron(cron)
    last = after
    for day in _dates(wanted, datetime.fromtimestamp(after, zone).date()):
        for moment in _of_day(wanted, day, zone, after):
            if moment > last:
                last = moment
                yield datetime.fromtimestamp(moment, zone)


def _dates(wanted: Cron, start: date) -> Iterator[date]:
    # From the day before: what clocks leave out late on a day comes on the next one.
    day = start - _DAY
    end = start.year + _MOST_YEARS
    while day.year <= end:
        if not wanted.has_year(day.year):
            day = date(day.year + 1, 1, 1)
            continue
        if wanted.has_date(day):
            yield day
            end = day.year + _MOST_YEARS
        day += _DAY


def _of_day(wanted: Cron, day: date, zone: tzinfo, after: int) -> Iterator[int]:
    """The moments of a day, in seconds since 1970 and in order."""
    midnight = datetime.combine(day, time())
    offset, evening = _offset(midnight, zone), _offset(midnight + _DAY, zone)
    if offset != evening:
        yield from _of_changing_day(wanted, midnight, zone)
        return
    begin = int(midnight.replace(tzinfo=UTC).timestamp()) - offset
    for hour in wanted.hours:
        if begin + 3600 * (hour + 1) > after:
            for minute, second in itertools.product(wanted.minutes, wanted.seconds):
                yield begin + 3600 * hour + 60 * minute + second


def _of_changing_day(wanted: Cron, midnight: datetime, zone: tzinfo) -> list[int]:
    """The same for a day on which clocks are set."""
    found: set[int] = set()
    for hour, minute, second in itertools.product(wanted.hours, wanted.minutes, wanted.seconds):
        clock = midnight + timedelta(hours=hour, minutes=minute, seconds=second)
        first, second_time = (int(clock.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
        if second_time < first:
            # Clocks leave it out. What comes every hour has come an hour ago.
            if not wanted.every_hour:
                found.add(_change(second_time, first, zone))
        else:
            found.update((first, second_time) if wanted.every_hour else (first,))
    return sorted(found)


def _change(before: int, after: int, zone: tzinfo) -> int:
    """When clocks are set between two moments."""
    offset = datetime.fromtimestamp(before, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after


def _offset(clock: datetime, zone: tzinfo) -> int:
    offset = clock.replace(tzinfo=zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


@functools.lru_cache(maxsize=256)
def _zone(timezone: str) -> tzinfo:
    if timezone == "UTC":
        return UTC  # known without the system's time zones
    try:
        return ZoneInfo(timezone)
    except Exception as error:  # ZoneInfo raises several unrelated types for a bad key
        raise Misuse(
            f"there is no time zone {timezone!r}",
            hint="use a name such as Europe/Berlin; a system without any needs its package tzdata",
        ) from error
