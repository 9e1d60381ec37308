"""The moments of a cron expression in a time zone, and its words: read from English, or said in it."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from ratchet.kernel import Misuse
from ratchet.runtime.timetable import cron
from ratchet.runtime.timetable.cron import DAYS, MONTHS, Cron, Range, parse_cron
from ratchet.runtime.timetable.english import listen
from ratchet.runtime.timetable.vocabulary import TimeOfDay

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
        raise Misuse(
            f"the schedule {cron!r} never happens again: it lies in the past or on no date",
            hint="give a date that comes, such as '0 9 * * 1' for every Monday at nine",
        )
    return found


def _moments(cron: str, timezone: str, after: int) -> Iterator[datetime]:
    """The moments later than `after`, in order, until there are no more."""
    zone, wanted = _zone(timezone), parse_cron(cron)
    last = after
    for day in _dates_between(wanted, datetime.fromtimestamp(after, zone).date()):
        for moment in _of_day(wanted, day, zone, after):
            if moment > last:
                last = moment
                yield datetime.fromtimestamp(moment, zone)


def _dates_between(wanted: Cron, start: date) -> Iterator[date]:
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


_WEEKDAYS = [1, 2, 3, 4, 5]
# Longer lists say less than the expression itself.
_MOST = 12


def tell(expression: str) -> str:
    """`every weekday at 09:00`; what has no simple words is told as `cron …`."""
    words = _in_words(expression)
    return f"cron {expression}" if words is None else words


def _in_words(expression: str) -> str | None:
    fields = expression.split()
    if len(fields) > 6 or "#" in expression:
        return None
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ["0", *fields]
    dates = _dates(day, month, weekday)
    interval = _interval(second, minute, hour)
    if dates is None:
        return None
    if interval is not None:
        return f"{interval} {dates[1]}".strip()
    times = _times(second, minute, hour)
    return None if times is None else f"{dates[0]} at {times}"


def _interval(second: str, minute: str, hour: str) -> str | None:
    if (minute, hour) == ("*", "*") and second != "0":
        return _every(second, 60, "second")
    if second == "0" and hour == "*" and not minute.isdigit():
        return _every(minute, 60, "minute")
    if second == "0" and minute.isdigit() and int(minute) < 60:
        every = _every(hour, 24, "hour")
        at = f" at minute {int(minute)}" if int(minute) else ""
        return None if every is None else f"{every}{at}"
    return None


def _every(field: str, whole: int, unit: str) -> str | None:
    if field == "*":
        return f"every {unit}"
    star, _, step = field.partition("/")
    even = star == "*" and step.isdigit() and 1 < int(step) < whole and whole % int(step) == 0
    return f"every {int(step)} {unit}s" if even else None


def _dates(day: str, month: str, weekday: str) -> tuple[str, str] | None:
    """The days, as they stand alone and as they stand behind an interval."""
    if (day, month, weekday) == ("*", "*", "*"):
        return "every day", ""
    if day == "*" and month == "*":
        days = _numbers(weekday, cron.WEEKDAY)
        if days is None:
            return None
        # A week begins with its monday.
        days.sort(key=lambda number: (number - 1) % 7)
        names = ["weekday"] if days == _WEEKDAYS else [DAYS[number] for number in days]
        return f"every {_listed(names)}", f"on {_listed([f'{name}s' for name in names])}"
    if weekday != "*":
        return None
    months = None if month == "*" else _numbers(month, cron.MONTH)
    if month != "*" and months is None:
        return None
    of = "every month" if months is None else _listed([MONTHS[number - 1] for number in months])
    if day.upper() == "L":
        return f"on the last day of {of}", f"on the last day of {of}"
    days = _numbers(day, cron.DAY)
    if days is None:
        return None
    told = f"on the {_listed([_ordinal(number) for number in days])} of {of}"
    return told, told


def _times(second: str, minute: str, hour: str) -> str | None:
    hours, minutes, seconds = (
        _numbers(hour, cron.HOUR),
        _numbers(minute, cron.MINUTE),
        _numbers(second, cron.SECOND),
    )
    if hours is None or minutes is None or seconds is None:
        return None
    times = [str(TimeOfDay(*time)) for time in itertools.product(hours, minutes, seconds)]
    return _listed(times) if len(times) <= _MOST else None


def _numbers(field: str, of: Range) -> list[int] | None:
    """The numbers that a field stands for; nothing for all of them, and for what is no number."""
    try:
        found = cron.numbers(field.lower(), of)
    except ValueError:
        return None
    return None if found is None else list(found)


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


@dataclass(frozen=True, slots=True)
class When:
    """A cron expression, and what it means in words. Reading the words gives the same times again."""

    cron: str
    words: str


def read_when(text: str) -> When:
    """What `text` says. Raises `Misuse` naming what was not understood; nothing is guessed."""
    given = " ".join(text.split())
    understood = cron.as_cron(given) or listen(given).cron(given)
    check_cron(understood)
    return When(understood, tell(understood))
