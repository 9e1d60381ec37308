"""The words that a time is made of, what was understood of them, and the cron expression that says the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from ratchet.kernel import Misuse
from ratchet.runtime.timetable import cron

# The hours that each part of the day can mean.
PARTS = {
    "morning": range(1, 12),
    "afternoon": range(12, 19),
    "evening": range(16, 24),
    "night": (18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4, 5),
}


class TimeOfDay(NamedTuple):
    hour: int
    minute: int
    second: int

    def __str__(self) -> str:
        tail = f":{self.second:02}" if self.second else ""
        return f"{self.hour:02}:{self.minute:02}{tail}"


class Spoken(NamedTuple):
    """A time as it was said. `half` is am or pm; a bare one is an hour and nothing else."""

    clock: TimeOfDay
    half: str | None = None
    bare: bool = False


def settled(times: list[Spoken], part: str | None) -> list[TimeOfDay]:
    """The exact times. Raises `ValueError` with the reason when one could be meant in two ways or in none."""
    if any(time.half for time in times) and any(time.bare for time in times):
        doubtful = next(time for time in times if time.bare)
        raise ValueError(f"{doubtful.clock.hour} could be am or pm")
    exact = [_exact(time) for time in times]
    return (
        exact
        if part is None
        else [_in_part(time, clock, part) for time, clock in zip(times, exact, strict=True)]
    )


def _exact(time: Spoken) -> TimeOfDay:
    clock = time.clock
    if time.half is not None:
        if not 1 <= clock.hour <= 12:
            raise ValueError(f"{clock.hour}{time.half} is no time of day")
        clock = clock._replace(hour=clock.hour % 12 + (12 if time.half == "pm" else 0))
    if clock.hour > 23 or clock.minute > 59 or clock.second > 59:
        raise ValueError(f"{clock} is no time of day")
    return clock


def _in_part(time: Spoken, clock: TimeOfDay, part: str) -> TimeOfDay:
    hours = {clock.hour} if time.half is not None or clock.hour > 12 else {clock.hour, (clock.hour + 12) % 24}
    meant = [hour for hour in hours if hour in PARTS[part]]
    if len(meant) != 1:
        raise ValueError(f"{clock} is not in the {part}" if part != "night" else f"{clock} is not at night")
    return clock._replace(hour=meant[0])


# Of each unit: how many make one of the next.
_LARGER = {"second": (60, "minute"), "minute": (60, "hour"), "hour": (24, "day"), "month": (12, "year")}
_WITHIN_A_DAY = ("second", "minute", "hour")
_HINT = (
    "say it like 'every weekday at 9am', 'every 5 minutes', 'every monday and friday at 18:30', "
    "'on the 15th of every month at 8:05', or as cron: '0 9 * * 1-5'"
)


def refuse(text: str, reason: str) -> NoReturn:
    raise Misuse(
        f"{text!r} is neither a time that can be understood nor a cron expression: {reason}", hint=_HINT
    )


class Interval(NamedTuple):
    number: int
    unit: str


@dataclass(slots=True)
class Heard:
    """The parts of a time, gathered while it is read."""

    interval: Interval | None = None
    weekdays: set[int] = field(default_factory=set)
    days: set[int] = field(default_factory=set)
    last_day: bool = False
    months: set[int] = field(default_factory=set)
    times: list[Spoken] = field(default_factory=list)
    minute: int | None = None
    part: str | None = None

    def cron(self, text: str) -> str:
        """The cron expression for all this. Raises `Misuse` where none says exactly that."""
        interval = _evened(text, self.interval) if self.interval is not None else None
        if interval is not None and interval.unit in _WITHIN_A_DAY:
            clock = self._ticking(text, interval)
        else:
            clock = self._at(text)
        return f"{clock} {self._dates(text, interval)}"

    def _ticking(self, text: str, interval: Interval) -> str:
        """The fields of the clock for what comes many times a day."""
        if self.times or self.part is not None:
            refuse(text, f"every {_interval_words(interval)} has no time of day")
        if self.minute is not None and interval.unit != "hour":
            refuse(text, f"every {_interval_words(interval)} has no minute of the hour")
        step = "*" if interval.number == 1 else f"*/{interval.number}"
        if interval.unit == "second":
            return f"{step} * *"
        return f"{step} *" if interval.unit == "minute" else f"{self.minute or 0} {step}"

    def _at(self, text: str) -> str:
        """The fields of the clock for times of the day; midnight when none is said."""
        if self.minute is not None:
            refuse(text, f"minute {self.minute} of which hour is not said")
        if self.part is not None and not self.times:
            refuse(text, f"{self.part!r} is no exact time; say for example 'at 2:30'")
        try:
            times = settled(self.times, self.part) or [TimeOfDay(0, 0, 0)]
        except ValueError as error:
            refuse(text, str(error))
        hours, minutes, seconds = ({time[place] for time in times} for place in range(3))
        if len(set(times)) != len(hours) * len(minutes) * len(seconds):
            refuse(text, f"{' and '.join(map(str, sorted(times)))} need a schedule each")
        second = "" if seconds == {0} else f"{cron.field(seconds)} "
        return f"{second}{cron.field(minutes)} {cron.field(hours)}"

    def _dates(self, text: str, interval: Interval | None) -> str:
        """The fields of day, month and weekday."""
        unit = None if interval is None or interval.unit in _WITHIN_A_DAY else interval.unit
        dated = bool(self.days or self.last_day)
        if self.weekdays and (dated or self.months or unit in ("month", "year")):
            refuse(text, "cron cannot join days of the week with dates")
        if unit == "day" and (self.weekdays or dated or self.months):
            refuse(text, "every day and certain days exclude each other")
        if unit == "week" and (dated or self.months):
            refuse(text, "every week and certain dates exclude each other")
        if self.days and self.last_day:
            refuse(text, "the last day of the month needs a schedule of its own")
        if self.months and not dated:
            refuse(text, "the day of the month is missing; say for example 'on the 1st of december'")
        months = self._months(text, interval)
        if unit in ("month", "year") or dated:
            day = cron.LAST if self.last_day else cron.field(self.days or {1})
            return f"{day} {cron.field(months) if months else '*'} *"
        weekdays = self.weekdays or ({0} if unit == "week" else set())
        return f"* * {cron.field(weekdays) if weekdays else '*'}"

    def _months(self, text: str, interval: Interval | None) -> set[int]:
        if interval is None or interval.unit not in ("month", "year") or interval == (1, "month"):
            return self.months
        if self.months and interval.unit == "month":
            refuse(text, f"every {_interval_words(interval)} and certain months exclude each other")
        step = 12 if interval.unit == "year" else interval.number
        return self.months or set(range(1, 13, step))


def _evened(text: str, interval: Interval) -> Interval:
    """The interval in the largest unit. Cron begins again with each minute, hour, day and year: what does not divide
    them evenly would come at uneven times."""
    number, unit = interval
    if number < 1:
        refuse(text, f"every {_interval_words(interval)} is no interval")
    while unit in _LARGER and number % _LARGER[unit][0] == 0:
        number, unit = number // _LARGER[unit][0], _LARGER[unit][1]
    if unit in _LARGER and number > _LARGER[unit][0]:
        refuse(text, f"{_interval_words(interval)} are no whole number of {_LARGER[unit][1]}s")
    if unit in _LARGER and _LARGER[unit][0] % number:
        refuse(text, f"{_interval_words(interval)} do not divide {_an(_LARGER[unit][1])} evenly")
    if unit not in _LARGER and number > 1:
        refuse(text, f"every {_interval_words(interval)} cannot be said by cron; name the days")
    return Interval(number, unit)


def _interval_words(interval: Interval) -> str:
    return interval.unit if interval.number == 1 else f"{interval.number} {interval.unit}s"


def _an(unit: str) -> str:
    return f"an {unit}" if unit == "hour" else f"a {unit}"


WORD = re.compile(r"\d{1,2}[:.]\d\d(?::\d\d)?(?!\d)|\d+(?:st|nd|rd|th)\b|\d+|[a-z]+|[^\sa-z\d]", re.ASCII)
SPELLINGS = (("’", "'"), ("o'clock", " "), ("a.m.", "am "), ("p.m.", "pm "), ("&", " and "))
UNITS = {
    **dict.fromkeys(("second", "seconds", "sec", "secs"), "second"),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), "minute"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "hour"),
    **{form: unit for unit in ("day", "week", "month", "year") for form in (unit, f"{unit}s")},
}
ADVERBS = {
    "hourly": Interval(1, "hour"),
    "daily": Interval(1, "day"),
    "weekly": Interval(1, "week"),
    "monthly": Interval(1, "month"),
    "quarterly": Interval(3, "month"),
    "yearly": Interval(1, "year"),
    "annually": Interval(1, "year"),
}
_COUNTED = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBERS = {word: number for number, word in enumerate(_COUNTED, start=1)} | {
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
}
WEEKDAYS = {form: number for number, day in enumerate(cron.DAYS) for form in (day, f"{day}s", day[:3])} | {
    "tues": 2,
    "thur": 4,
    "thurs": 4,
}
_WORKING, _FREE = frozenset({1, 2, 3, 4, 5}), frozenset({0, 6})
GROUPS = {"weekday": _WORKING, "weekdays": _WORKING, "weekend": _FREE, "weekends": _FREE}
MONTHS = {form: number for number, name in enumerate(cron.MONTHS, start=1) for form in (name, name[:3])}
ORDINALS = {"first": 1, "fifteenth": 15}
DAY_PARTS = {**{part: part for part in PARTS}, **{f"{part}s": part for part in PARTS}, "nightly": "night"}
NAMED_TIMES = {"noon": TimeOfDay(12, 0, 0), "midday": TimeOfDay(12, 0, 0), "midnight": TimeOfDay(0, 0, 0)}
# Words that only hold the others together.
JOINTS = frozenset({"on", "the", "of", "and", ",", "in", "from"})
_TWICE = "say each time, such as 'every day at 8:00 and 20:00'"
REASONS = {"twice": _TWICE, "thrice": _TWICE, "times": _TWICE, "other": "cron does not count weeks or days"}
