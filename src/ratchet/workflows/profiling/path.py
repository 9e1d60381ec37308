"""The longest way through the steps of a workflow."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ratchet.flowkit.graph import levels


def longest_way(edges: Mapping[str, Collection[str]], took: Mapping[str, float]) -> list[str]:
    """The steps, each of which waits for the one before, that take longest together. Whoever shortens none of them
    makes the workflow no faster."""
    ends: dict[str, float] = {}
    before: dict[str, str | None] = {}
    for level in levels(edges):
        for step in level:
            last = max(sorted(edges[step]), key=lambda other: ends.get(other, 0.0), default=None)
            before[step] = last
            ends[step] = took.get(step, 0.0) + (0.0 if last is None else ends[last])
    way: list[str] = []
    coming = max(ends, key=lambda step: ends[step], default=None)
    while coming is not None:
        way.append(coming)
        coming = before[coming]
    return way[::-1]
