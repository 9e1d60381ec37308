"""Times of day as people say them: 9am, 18:30, noon, 9 in the evening."""

from __future__ import annotations

from typing import NamedTuple

# The hours that each part of the day can mean.
PARTS = {
    "morning": range(1, 12),
    "afternoon": range(12, 19),
    "evening": range(16, 24),
    "night": (18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4, 5),
}


class Clock(NamedTuple):
    hour: int
    minute: int
    second: int

    def __str__(self) -> str:
        tail = f":{self.second:02}" if self.second else ""
        return f"{self.hour:02}:{self.minute:02}{tail}"


class Spoken(NamedTuple):
    """A time as it was said. `half` is am or pm; a bare one is an hour and nothing else."""

    clock: Clock
    half: str | None = None
    bare: bool = False


def settled(times: list[Spoken], part: str | None) -> list[Clock]:
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


def _exact(time: Spoken) -> Clock:
    clock = time.clock
    if time.half is not None:
        if not 1 <= clock.hour <= 12:
            raise ValueError(f"{clock.hour}{time.half} is no time of day")
        clock = clock._replace(hour=clock.hour % 12 + (12 if time.half == "pm" else 0))
    if clock.hour > 23 or clock.minute > 59 or clock.second > 59:
        raise ValueError(f"{clock} is no time of day")
    return clock


def _in_part(time: Spoken, clock: Clock, part: str) -> Clock:
    hours = {clock.hour} if time.half is not None or clock.hour > 12 else {clock.hour, (clock.hour + 12) % 24}
    meant = [hour for hour in hours if hour in PARTS[part]]
    if len(meant) != 1:
        raise ValueError(f"{clock} is not in the {part}" if part != "night" else f"{clock} is not at night")
    return clock._replace(hour=meant[0])
