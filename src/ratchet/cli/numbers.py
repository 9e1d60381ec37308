"""The numbers that commands take."""

from __future__ import annotations

import math

import click

# The largest that both databases can hold.
_LARGEST = 2**63 - 1


class Number(click.ParamType[int]):
    """A whole number from `min` to `max`. Help does not tell the range: nobody comes near its end."""

    name = "n"

    def __init__(self, min: int, max: int) -> None:
        self.min = min
        self.max = max

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not text.removeprefix("-").isdecimal():
            self.fail(f"{text!r} is not a whole number.", param, ctx)
        number = int(text) if len(text) <= 20 else self.max + 1
        if not self.min <= number <= self.max:
            self.fail(f"{text} is not a number from {self.min} to {self.max}.", param, ctx)
        return number


class Amount(click.ParamType[float]):
    """A number above nothing, up to `max`."""

    name = "n"

    def __init__(self, max: float = math.inf) -> None:
        self.max = max

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value))
        except ValueError:
            self.fail(f"{str(value)!r} is not a number.", param, ctx)
        if not (0 < number <= self.max and math.isfinite(number)):
            end = "" if self.max == math.inf else f" up to {self.max:g}"
            self.fail(f"{value} is not a number above 0{end}.", param, ctx)
        return number


ID = Number(1, _LARGEST)
COUNT = Number(1, 1_000_000)
PORT = Number(0, 65535)
PRIORITY = Number(0, 9)
