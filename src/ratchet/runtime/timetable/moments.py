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
from datetime import datetime
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, CroniterError, croniter

from ratchet.kernel import Misuse

_HOUR = 1


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
        # From ever further back: a long time holds many moments, and only its end is wanted. croniter's own way back
        # leaves some out where clocks are set.
        reach = float(most)
        while True:
            start = max(after, until - reach)
            passed = itertools.takewhile(lambda moment: moment.timestamp() <= until, self._from(start))
            found = deque((moment for moment in passed if moment.timestamp() > start), maxlen=most)
            if len(found) == most or start == after:
                return list(found)
            reach *= 4

    def _from(self, moment: float) -> Iterator[datetime]:
        try:
            yield from _moments(self.cron, self.timezone, int(moment))
        except CroniterBadDateError:
            return


def check_cron(cron: str) -> None:
    """Raise `Misuse` unless `cron` is a cron expression."""
    try:
        croniter.expand(cron, second_at_beginning=True)
    except (CroniterError, ValueError, KeyError, AttributeError) as error:
        raise Misuse(
            f"{cron!r} is not a cron expression: {error}",
            hint="five fields (minute hour day month weekday), or six with seconds first",
        ) from error


# A clock that waits for a moment asks for it again and again.
@functools.lru_cache(maxsize=4096)
def _next(cron: str, timezone: str, after: int) -> datetime:
    try:
        return next(_moments(cron, timezone, after))
    except CroniterBadDateError as error:
        raise Misuse(
            f"the schedule {cron!r} never happens again: it lies in the past or on no date"
        ) from error


def _moments(cron: str, timezone: str, after: int) -> Iterator[datetime]:
    zone = _zone(timezone)
    check_cron(cron)
    moments = croniter(cron, datetime.fromtimestamp(after, zone), second_at_beginning=True)
    while True:
        found = moments.get_next(datetime)
        if _counts(cron, found):
            yield found


def _counts(cron: str, moment: datetime) -> bool:
    """Whether a moment is not the second coming of a time of day that has been already."""
    return moment.fold == 0 or _every_hour(cron)


@functools.lru_cache(maxsize=1024)
def _every_hour(cron: str) -> bool:
    fields, _ = croniter.expand(cron, second_at_beginning=True)
    return bool(fields[_HOUR] == ["*"])


@functools.lru_cache(maxsize=256)
def _zone(timezone: str) -> ZoneInfo:
    try:
        return ZoneInfo(timezone)
    except Exception as error:  # ZoneInfo raises several unrelated types for a bad key
        raise Misuse(
            f"there is no time zone {timezone!r}", hint="use a name such as Europe/Berlin"
        ) from error
