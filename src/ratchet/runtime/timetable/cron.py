"""Cron expressions: what is one, what its fields hold, and which days and times they mean."""

from __future__ import annotations

import calendar
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from ratchet.kernel import Misuse

DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
# The last day of a month, whichever number it has.
LAST = "L"

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_NAMES = "|".join(name[:3] for name in (*DAYS, *MONTHS))
# Digits, stars, names of days and months, L and #. No letters that draw lots: a time must stay what it is.
_ITEM = rf"(?:\*|\?|l?\d+|l|{_NAMES})(?:-(?:\d+|{_NAMES}))?(?:/\d+)?(?:#\d)?"
_FIELD = re.compile(rf"{_ITEM}(?:,{_ITEM})*", re.IGNORECASE)


_LAST_WEEK = 0


class Range(NamedTuple):
    """A field: its name, its least and greatest number, and the words that stand for some of them."""

    name: str
    least: int
    most: int
    words: Mapping[str, int] = {}


SECOND = Range("second", 0, 59)
MINUTE = Range("minute", 0, 59)
HOUR = Range("hour", 0, 23)
DAY = Range("day", 1, 31)
MONTH = Range("month", 1, 12, {name[:3]: number for number, name in enumerate(MONTHS, 1)})
# Sunday is 0, and 7 as well.
WEEKDAY = Range("weekday", 0, 7, {name[:3]: number for number, name in enumerate(DAYS)})
YEAR = Range("year", 1970, 2099)


@dataclass(frozen=True, slots=True)
class Cron:
    """The numbers of each field. `None` stands for any day, weekday or year.

    `weeks` has pairs of a weekday and which of its month it is, 0 being the last one.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int] | None
    last_day: bool
    months: frozenset[int]
    weekdays: frozenset[int] | None
    weeks: frozenset[tuple[int, int]]
    years: frozenset[int] | None

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24

    def has_year(self, year: int) -> bool:
        return self.years is None or year in self.years

    def has_date(self, day: date) -> bool:
        """Whether it happens on this day. Where both days and weekdays are named, either is enough."""
        if day.month not in self.months or not self.has_year(day.year):
            return False
        if self.days is None and not self.last_day:
            return self._has_weekday(day)
        if self.weekdays is None and not self.weeks:
            return self._has_day(day)
        return self._has_day(day) or self._has_weekday(day)

    def _has_day(self, day: date) -> bool:
        if self.days is not None and day.day in self.days:
            return True
        return self.last_day and day.day == calendar.monthrange(day.year, day.month)[1]

    def _has_weekday(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if self.weeks:
            is_last = day.day + 7 > calendar.monthrange(day.year, day.month)[1]
            return (weekday, (day.day + 6) // 7) in self.weeks or (
                is_last and (weekday, _LAST_WEEK) in self.weeks
            )
        return self.weekdays is None or weekday in self.weekdays


@functools.lru_cache(maxsize=1024)
def parse_cron(text: str) -> Cron:
    """Read five fields (minute hour day month weekday), six with seconds first, or seven with the year last.

    Raises `Misuse`.
    """
    fields = text.lower().split()
    if not 5 <= len(fields) <= 7 or not all(map(_FIELD.fullmatch, fields)):
        raise _refused(text, "it has not the form of one")
    try:
        return _parsed(["0", *fields] if len(fields) == 5 else fields)
    except ValueError as error:
        raise _refused(text, str(error)) from None


def numbers(field: str, of: Range) -> tuple[int, ...] | None:
    """The numbers that a field stands for, in order; `None` for all of them. Raises `ValueError`."""
    name, least, most, _ = of
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        if step and int(step) == 0:
            raise ValueError(f"a step of 0 in the {name} {item!r}")
        if span == "?" and of not in (DAY, WEEKDAY):
            raise ValueError(f"? stands only for a day or a weekday, not for the {name}")
        if span in ("*", "?"):
            if int(step or 1) == 1:
                return None
            first, last = least, most - (of is WEEKDAY)
        else:
            low, _, high = span.partition("-")
            first = _number(low, of)
            # 5/15 means from 5 on.
            last = _number(high, of) if high else most - (of is WEEKDAY) if step else first
        # fri-mon goes past the end of the week.
        run = (
            [*range(first, last + 1)] if first <= last else [*range(first, most + 1), *range(least, last + 1)]
        )
        if of is WEEKDAY:
            run = list(dict.fromkeys(number % 7 for number in run))
        found.update(run[:: int(step or 1)])
    return tuple(sorted(found))


def _parsed(fields: list[str]) -> Cron:
    second, minute, hour, day, month, weekday, *year = fields
    days = [item for item in day.split(",") if item != LAST.lower()]
    weeks = [item for item in weekday.split(",") if "#" in item or item.startswith("l")]
    if weeks and len(weeks) < len(weekday.split(",")):
        raise ValueError(
            f"the weekday {weekday!r} mixes days of every week with those of one week of the month"
        )
    chosen_days = numbers(",".join(days), DAY) if days else ()
    chosen_weekdays = None if weeks else numbers(weekday, WEEKDAY)
    years = numbers(year[0], YEAR) if year else None
    return Cron(
        seconds=_all(numbers(second, SECOND), SECOND),
        minutes=_all(numbers(minute, MINUTE), MINUTE),
        hours=_all(numbers(hour, HOUR), HOUR),
        days=None if chosen_days is None else frozenset(chosen_days),
        last_day=len(days) < len(day.split(",")),
        months=frozenset(_all(numbers(month, MONTH), MONTH)),
        weekdays=None if chosen_weekdays is None else frozenset(chosen_weekdays),
        weeks=frozenset(map(_week, weeks)),
        years=None if years is None else frozenset(years),
    )


def _week(item: str) -> tuple[int, int]:
    """`1#2` is the second monday, `l5` the last friday."""
    if item.startswith("l") and item != "l" and "#" not in item:
        return _number(item[1:], WEEKDAY) % 7, _LAST_WEEK
    weekday, _, week = item.partition("#")
    if not week or not 1 <= int(week) <= 5:
        raise ValueError(f"{item!r} names no week of a month")
    return _number(weekday, WEEKDAY) % 7, int(week)


def _number(text: str, of: Range) -> int:
    name, least, most, words = of
    number = words.get(text, int(text) if text.isdecimal() else None)
    if number is None or not least <= number <= most:
        raise ValueError(f"{text!r} is no {name}")
    return number


def _all(chosen: tuple[int, ...] | None, of: Range) -> tuple[int, ...]:
    return tuple(range(of[1], of[2] + 1)) if chosen is None else chosen


def _refused(text: str, why: str) -> Misuse:
    return Misuse(
        f"{text!r} is not a cron expression: {why}",
        hint="five fields (minute hour day month weekday), or six with seconds first",
    )


def as_cron(text: str) -> str | None:
    """The cron expression that `text` is, `@daily` and the like written out; nothing if it has not the form of one."""
    plain = text.removeprefix("cron ")
    fields = _ALIASES.get(plain, plain).split()
    return " ".join(fields) if 5 <= len(fields) <= 7 and all(map(_FIELD.fullmatch, fields)) else None


def field(numbers: Iterable[int]) -> str:
    """A list of numbers as a field; three or more in a row become a range."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run] for run in runs)
    return ",".join(part for run in parts for part in run)
