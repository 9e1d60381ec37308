"""The form of cron expressions: what is one, and what its fields hold."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
