"""The rows of the peers in the table of `research`."""

from __future__ import annotations

import dataclasses

from benchmarks.peers.openevolve import OPENEVOLVE
from benchmarks.peers.peer import Unavailable
from benchmarks.peers.run import Found, run_peer
from benchmarks.peers.shinka import SHINKA
from benchmarks.result import Result
from benchmarks.sample import ratio
from benchmarks.scale import Scale
from benchmarks.stage import Stage

# All but the rates: the title, the ratio, and CPU and memory twice.
_OTHER_COLUMNS = 6
_NOTES = (
    "a peer's rates are those of the first and the last tenth of its iterations, its CPU is that of the rest; it has"
    " several processes, so only the columns with children compare",
    "the peers evaluate without a sandbox, OpenEvolve in its own process; their model answers over HTTP from the"
    " benchmark's process, which is not counted, and Ratchet's from inside the loop",
    "OpenEvolve evaluates two at a time, ShinkaEvolve as many as it does by itself",
)


def add_peers(stage: Stage, scale: Scale, result: Result) -> None:
    """Run every peer; one that cannot be run has a row that says so and a note that says why."""
    for peer, iterations in ((OPENEVOLVE, scale.openevolve), (SHINKA, scale.shinka)):
        title = f"{peer.title}, {iterations:,} iterations"
        try:
            found = run_peer(stage, peer, iterations)
        except Unavailable as why:
            result.rows.append([title, "not run", *["–"] * (len(result.columns) - 2)])
            result.notes.append(f"{peer.title} was not run: {why}")
            result.numbers[peer.name] = {"unavailable": str(why)}
        else:
            result.rows.append(row(title, found, len(result.columns)))
            result.numbers[peer.name] = dataclasses.asdict(found)
    result.notes += _NOTES


def row(title: str, found: Found, columns: int) -> list[str]:
    """A peer has an early and a late rate; the columns for places in between stay empty."""
    between = ["–"] * (columns - _OTHER_COLUMNS - 2)
    rates = [f"{found.first:.1f}", *between, f"{found.last:.1f}", ratio(found.last, found.first)]
    return [title, *rates, "–", f"{found.cpu_ms:.1f}", "–", f"{found.rss_mb:.0f}"]
