"""A workflow as a graph: the plan, or a run with the state of each step and the critical path through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from ratchet.server.console.drawing.graph import Drawing, Node, draw
from ratchet.server.console.wording import duration

# A larger graph helps nobody, and takes long to lay out.
MOST_NODES = 1_000


def draw_plan(steps: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """The steps of `plan_record`, each with how long it usually takes."""
    nodes = [Node(each["step"], each["step"], each["type"], note=_told(each)) for each in steps]
    return _drawn(nodes, steps, ())


def draw_run(url: str, progress: Mapping[str, Any]) -> Drawing | None:
    """The steps of a run; `url` is its page, which shows a step closely."""
    steps = progress["steps"]
    nodes = [
        Node(
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
    nodes: Sequence[Node], steps: Sequence[Mapping[str, Any]], strong: Sequence[str]
) -> Drawing | None:
    if len(nodes) > MOST_NODES:
        return None
    return draw(
        nodes,
        [(before, each["step"]) for each in steps for before in each["needs"]],
        strong=frozenset(strong),
    )


def _told(step: Mapping[str, Any]) -> str:
    what = str(step["tool"] or step["type"]).replace("_", " ")
    took = step["estimated_ms"]
    return _short(what if took is None else f"{what} · {duration(took / 1000)}")


def _taken(step: Mapping[str, Any]) -> str:
    told = [] if step["wall_ms"] is None else [duration(step["wall_ms"] / 1000)]
    told += [f"{step['parts']} parts"] if step["parts"] else []
    told += ["from cache"] if step["cached"] else []
    told += [f"{step['path_share']:.0%} of the way"] if step["path_share"] else []
    return _short(" · ".join(told))


def _short(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:29]}…"
