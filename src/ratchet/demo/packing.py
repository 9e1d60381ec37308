"""The packings of the research act: run once more in the sandbox, and drawn beside each other."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ratchet.demo.stage import ActFailed
from ratchet.research.views.markup import Markup, joined, tag
from ratchet.sandbox import Bounds, Node, run
from ratchet.workspaces import Repository

_SIDE = 240.0


class Circle(NamedTuple):
    """In a square of side 1."""

    x: float
    y: float
    radius: float


def draw_packings(packings: Mapping[str, Sequence[Circle]]) -> Markup:
    """Each with what it is called."""
    figures = [_figure(name, circles) for name, circles in packings.items()]
    return tag("div", *figures, class_="figures")


def _figure(name: str, circles: Sequence[Circle]) -> Markup:
    frame = tag("rect", x=1, y=1, width=_SIDE, height=_SIDE, class_="box")
    drawn = [
        tag("circle", cx=1 + each.x * _SIDE, cy=1 + each.y * _SIDE, r=each.radius * _SIDE, class_="packed")
        for each in circles
    ]
    svg = tag(
        "svg",
        joined([frame, *drawn]),
        viewBox=f"0 0 {_SIDE + 2:g} {_SIDE + 2:g}",
        role="img",
        aria_label=f"{len(circles)} circles in a square: {name}",
        xmlns="http://www.w3.org/2000/svg",
    )
    return tag("figure", svg, tag("figcaption", name))


_RECIPE, _FUNCTION = "recipe.py", "pack"
_MODULES = ("numpy",)
_BOUNDS = Bounds(wall_seconds=30.0, cpu_seconds=10.0, memory_bytes=512 * 1024**2, output_bytes=64 * 1024)


def packings(repository: Path, commits: Sequence[str]) -> list[list[Circle]]:
    """What the program at each of these commits packs. Raises `ActFailed` when one packs nothing."""
    with Repository.open(repository) as opened:
        sources = [opened.read_file(commit, _RECIPE) for commit in commits]
    return asyncio.run(_packed(sources))


async def _packed(sources: Sequence[bytes]) -> list[list[Circle]]:
    return [await _pack(source) for source in sources]


async def _pack(source: bytes) -> list[Circle]:
    node = Node(source.decode(), function=_FUNCTION, modules=_MODULES)
    ended = await run(node, stdin=b"{}", bounds=_BOUNDS)
    try:
        found = [Circle(*map(float, each)) for each in json.loads(ended.stdout)["circles"]]
    except (ValueError, LookupError, TypeError) as error:
        raise ActFailed(f"the program packs nothing: {ended.problem or error}") from error
    if not all(math.isfinite(value) for circle in found for value in circle):
        raise ActFailed("the program packs circles that are nowhere")
    return found
