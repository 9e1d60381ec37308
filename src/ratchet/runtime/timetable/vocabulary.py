"""The words that a time is made of."""

from __future__ import annotations

import re

from ratchet.runtime.timetable import cron
from ratchet.runtime.timetable.clock_times import PARTS, Clock
from ratchet.runtime.timetable.heard import Interval

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
NAMED_TIMES = {"noon": Clock(12, 0, 0), "midday": Clock(12, 0, 0), "midnight": Clock(0, 0, 0)}
# Words that only hold the others together.
JOINTS = frozenset({"on", "the", "of", "and", ",", "in", "from"})
_TWICE = "say each time, such as 'every day at 8:00 and 20:00'"
REASONS = {"twice": _TWICE, "thrice": _TWICE, "times": _TWICE, "other": "cron does not count weeks or days"}
