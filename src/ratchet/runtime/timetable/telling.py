"""A cron expression in words, such that reading them gives the same times again."""

from __future__ import annotations

import itertools

from ratchet.runtime.timetable import cron
from ratchet.runtime.timetable.clock_times import Clock
from ratchet.runtime.timetable.cron import DAYS, MONTHS, Range

_WEEKDAYS = [1, 2, 3, 4, 5]
# Longer lists say less than the expression itself.
_MOST = 12


def tell(expression: str) -> str:
    """`every weekday at 09:00`; what has no simple words is told as `cron …`."""
    words = _told(expression)
    return f"cron {expression}" if words is None else words


def _told(expression: str) -> str | None:
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
    times = [str(Clock(*time)) for time in itertools.product(hours, minutes, seconds)]
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
