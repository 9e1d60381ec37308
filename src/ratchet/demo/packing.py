"""The circles that a program of the research act packs: it is run once more, in the sandbox, to be looked at."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path

from ratchet.demo.pictures.circles import Circle
from ratchet.demo.stage import ActFailed
from ratchet.sandbox import Bounds, Node, run
from ratchet.workspaces import Repository

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
