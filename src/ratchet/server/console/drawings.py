"""Drawing a graph without cycles: boxes in columns, from left to right, joined by lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from ratchet.kernel import shortened
from ratchet.server.console.formats import duration

# A larger graph helps nobody, and takes long to lay out.
MOST_NODES = 1_000


def draw_plan(steps: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """The steps of `plan_record`, each with how long it usually takes."""
    nodes = [GraphNode(each["step"], each["step"], each["type"], note=_planned(each)) for each in steps]
    return _drawn(nodes, steps, ())


def draw_run(url: str, progress: Mapping[str, Any]) -> Drawing | None:
    """The steps of a run; `url` is its page, which shows a step closely."""
    steps = progress["steps"]
    nodes = [
        GraphNode(
            each["step"],
            each["step"],
            each["status"],
            note=_taken(each),
            href=f"{url}?{urlencode({'step': each['step']})}#step",
        )
        for each in steps
    ]
    return _drawn(nodes, steps, [each["step"] for each in progress["critical_path"]])


def _drawn(
    nodes: Sequence[GraphNode], steps: Sequence[Mapping[str, Any]], strong: Sequence[str]
) -> Drawing | None:
    if len(nodes) > MOST_NODES:
        return None
    return draw(
        nodes,
        [(before, each["step"]) for each in steps for before in each["needs"]],
        strong=frozenset(strong),
    )


def _planned(step: Mapping[str, Any]) -> str:
    what = str(step["tool"] or step["type"]).replace("_", " ")
    took = step["estimated_ms"]
    return _short(what if took is None else f"{what} · {duration(took / 1000)}")


def _taken(step: Mapping[str, Any]) -> str:
    parts = [] if step["wall_ms"] is None else [duration(step["wall_ms"] / 1000)]
    parts += [f"{step['parts']} parts"] if step["parts"] else []
    parts += ["from cache"] if step["cached"] else []
    parts += [f"{step['path_share']:.0%} of the way"] if step["path_share"] else []
    return _short(" · ".join(parts))


def draw_versions(url: str, versions: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Versions as a page of them has them, newest first; strong are the current one and those that led to it."""
    if not versions:
        return None
    oldest_first = versions[::-1]
    return draw(
        [
            GraphNode(
                each["commit"],
                f"{each['version']}  {each['commit'][:10]}",
                _state(each),
                note=_short(f"current · {each['summary']}" if each["is_current"] else each["summary"] or ""),
                href=f"{url}#version-{each['id']}",
            )
            for each in oldest_first
        ],
        [(each["parent"], each["commit"]) for each in oldest_first if each["parent"]],
        strong=frozenset(each["commit"] for each in versions if each["on_line"]),
    )


def _state(version: Mapping[str, Any]) -> str:
    if version["status"] == "quarantined":
        return "quarantined"
    if version["is_current"]:
        return "current"
    return "led_here" if version["on_line"] else "variant"


def _short(text: str) -> str:
    return shortened(text, 30)


_WIDTH, _HEIGHT = 190, 44
_BETWEEN_COLUMNS, _BETWEEN_ROWS = 56, 18
_MARGIN = 4
_CHARACTERS = 23
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class GraphNode:
    """Something with a status. `href` leads to more of it, `note` is a second line."""

    id: str
    text: str
    status: str
    note: str = ""
    href: str | None = None


@dataclass(frozen=True, slots=True)
class Box:
    x: int
    y: int
    width: int
    height: int
    text: str
    shown: str
    status: str
    note: str
    href: str | None
    strong: bool


@dataclass(frozen=True, slots=True)
class GraphLine:
    path: str
    strong: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[GraphLine]


def draw(
    nodes: Sequence[GraphNode], edges: Iterable[tuple[str, str]], *, strong: Collection[str] = ()
) -> Drawing:
    """Put each node right of what it depends on. `strong` are the nodes of a way to point out.

    Edges with an unknown end are left out, and so is what would close a circle.
    """
    known = {node.id for node in nodes}
    parents: dict[str, list[str]] = defaultdict(list)
    for before, after in edges:
        if before in known and after in known and before != after:
            parents[after].append(before)
    column = _columns([node.id for node in nodes], parents)
    rows = _rows([node.id for node in nodes], column, parents)
    boxes = {node.id: _box(node, column[node.id], rows[node.id], node.id in strong) for node in nodes}
    lines = [
        _line(boxes[before], boxes[after], before in strong and after in strong)
        for after, found in parents.items()
        for before in dict.fromkeys(found)
        if column[before] < column[after]
    ]
    return Drawing(
        max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN,
        max((box.y + box.height for box in boxes.values()), default=0) + _MARGIN,
        list(boxes.values()),
        lines,
    )


def _columns(ids: Sequence[str], parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The longest way to each, without recursion: a chain may be long."""
    column: dict[str, int] = {}
    for start in ids:
        waiting, open_now = [start], set[str]()
        while waiting:
            at = waiting[-1]
            if at in column:
                waiting.pop()
                continue
            open_now.add(at)
            missing = [each for each in parents.get(at, ()) if each not in column and each not in open_now]
            if missing:
                waiting.extend(missing)
                continue
            column[at] = 1 + max((column[each] for each in parents.get(at, ()) if each in column), default=-1)
            waiting.pop()
    return column


def _rows(
    ids: Sequence[str], column: Mapping[str, int], parents: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """In each column near the middle of what they come from, so that few lines cross."""
    columns: dict[int, list[str]] = defaultdict(list)
    for each in ids:
        columns[column[each]].append(each)
    tallest = max((len(found) for found in columns.values()), default=0)
    order = {each: float(place) for found in columns.values() for place, each in enumerate(found)}
    for _ in range(_ROUNDS):
        for number in sorted(columns):
            columns[number].sort(key=lambda each: _middle(each, order, parents))
            order.update({each: float(place) for place, each in enumerate(columns[number])})
    return {
        each: place + (tallest - len(found)) / 2
        for found in columns.values()
        for place, each in enumerate(found)
    }


def _middle(each: str, order: Mapping[str, float], parents: Mapping[str, Sequence[str]]) -> float:
    found = parents.get(each, ())
    return sum(order[parent] for parent in found) / len(found) if found else order[each]


def _box(node: GraphNode, column: int, row: float, strong: bool) -> Box:
    shown = shortened(node.text, _CHARACTERS)
    return Box(
        x=_MARGIN + column * (_WIDTH + _BETWEEN_COLUMNS),
        y=round(_MARGIN + row * (_HEIGHT + _BETWEEN_ROWS)),
        width=_WIDTH,
        height=_HEIGHT,
        text=node.text,
        shown=shown,
        status=node.status,
        note=node.note,
        href=node.href,
        strong=strong,
    )


def _line(before: Box, after: Box, strong: bool) -> GraphLine:
    x1, y1 = before.x + before.width, before.y + before.height // 2
    x2, y2 = after.x, after.y + after.height // 2
    bend = (x2 - x1) // 2
    return GraphLine(f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}", strong)
