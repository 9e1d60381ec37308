"""Steps as a row of blocks, coloured by the process that did them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.research.views.markup import Markup, joined, tag

_SIDE, _GAP, _TOP = 34.0, 6.0, 26.0
_COLOURS = ("first", "second", "third")


@dataclass(frozen=True, slots=True)
class Block:
    """A step: who did it, how often it was tried, and how often that went well."""

    name: str
    process: str | None
    tries: int
    passed: int


def draw_blocks(blocks: Sequence[Block]) -> Markup:
    order = list(dict.fromkeys(block.process for block in blocks if block.process))
    parts = [_block(at, block, order) for at, block in enumerate(blocks)]
    width = len(blocks) * (_SIDE + _GAP) + _GAP
    svg = tag(
        "svg",
        joined(parts),
        class_="plot small",
        viewBox=f"0 0 {width:g} {_TOP + _SIDE + 8:g}",
        role="img",
        aria_label="Steps in their order, coloured by the worker process that did them",
        xmlns="http://www.w3.org/2000/svg",
    )
    keys = [(f"done by worker {place + 1}", _colour(place)) for place in range(len(order))]
    shown = [tag("span", tag("i", class_=f"key-{colour}"), words) for words, colour in keys]
    shown.append(tag("span", tag("i", class_="key-crash"), "killed here, tried again"))
    return joined([tag("div", svg, class_="wide"), tag("div", *shown, class_="legend")])


def _block(at: int, block: Block, order: Sequence[str]) -> Markup:
    x = _GAP + at * (_SIDE + _GAP)
    colour = _colour(order.index(block.process)) if block.process in order else "none"
    title = tag("title", f"{block.name}: {block.tries} tries, {block.passed} passed")
    square = tag("rect", title, x=x, y=_TOP, width=_SIDE, height=_SIDE, rx=5, class_=f"block {colour}")
    if block.tries < 2:
        return square
    middle = x + _SIDE / 2
    mark = tag("path", d=f"M{middle - 6:.1f} 8l12 12m0 -12l-12 12", class_="cross")
    return joined([square, mark])


def _colour(place: int) -> str:
    return _COLOURS[min(place, len(_COLOURS) - 1)]
