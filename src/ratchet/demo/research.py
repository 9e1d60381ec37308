"""A program gets better: real search on a real task, every trial measured in a sandbox, every keep with its proof."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ratchet.demo.stage import ActFailed, DemoCommand, DemoStage, Shown
from ratchet.kernel import TrialStatus
from ratchet.ledger import Event
from ratchet.ledger.trial_pages import kept_trials
from ratchet.ledger.trials import Trial, get_trial
from ratchet.research.campaign import research_directory
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.views import evidence_of, read_status
from ratchet.research.views._report import score_plot
from ratchet.research.views.markup import Markup, joined, tag
from ratchet.research.views.plot import plotted
from ratchet.research.views.text import number
from ratchet.sandbox import Bounds, Node, run
from ratchet.workspaces import Repository

_SIDE = 240.0


class PackedCircle(NamedTuple):
    """In a square of side 1."""

    x: float
    y: float
    radius: float


def draw_packings(packings: Mapping[str, Sequence[PackedCircle]]) -> Markup:
    """Each with what it is called."""
    figures = [_figure(name, circles) for name, circles in packings.items()]
    return tag("div", *figures, class_="figures")


def _figure(name: str, circles: Sequence[PackedCircle]) -> Markup:
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


def packings(repository: Path, commits: Sequence[str]) -> list[list[PackedCircle]]:
    """What the program at each of these commits packs. Raises `ActFailed` when one packs nothing."""
    with Repository.open(repository) as opened:
        sources = [opened.read_file(commit, _RECIPE) for commit in commits]
    return asyncio.run(_circles(sources))


async def _circles(sources: Sequence[bytes]) -> list[list[PackedCircle]]:
    return [await _pack(source) for source in sources]


async def _pack(source: bytes) -> list[PackedCircle]:
    node = Node(source.decode(), function=_FUNCTION, modules=_MODULES)
    ended = await run(node, stdin=b"{}", bounds=_BOUNDS)
    try:
        found = [PackedCircle(*map(float, each)) for each in json.loads(ended.stdout)["circles"]]
    except (ValueError, LookupError, TypeError) as error:
        raise ActFailed(f"the program packs nothing: {ended.problem or error}") from error
    if not all(math.isfinite(value) for circle in found for value in circle):
        raise ActFailed("the program packs circles that are nowhere")
    return found


TASK = "circle_packing"
TRIALS = 40
# One session at a time, so that the same machine finds the same again.
_SEED, _PARALLEL = 5, 1
_MOST = 1000


def act(stage: DemoStage) -> Shown:
    name = stage.place.name("circles")
    begun = stage.find_run("research", name)
    run_id = begun.id if begun else start_research(stage.runtime, _wanted(name), actor="demo")
    stage.say(f"Run {run_id}: {TRIALS} trials of {TASK}, proposed by a search algorithm without a model")
    stage.carried(run_id, lambda event: _tell(stage, event))
    return _shown(stage, run_id)


def _wanted(name: str) -> ResearchRequest:
    return ResearchRequest(
        task=TASK, name=name, engine="search", trials=TRIALS, seed=_SEED, parallel=_PARALLEL
    )


def _tell(stage: DemoStage, event: Event) -> None:
    if event.type in ("trial.baseline", "trial.keep"):
        word = "the program as it is scores" if event.type == "trial.baseline" else "is better and kept:"
        stage.say(f"trial {event.data['exp_id']} {word} {event.data['score']:.5f}")


def _shown(stage: DemoStage, run_id: int) -> Shown:
    with stage.ledger.read() as tx:
        status = read_status(tx, run_id)
        kept = [each for each in kept_trials(tx, run_id, limit=_MOST) if each.status is TrialStatus.KEEP]
        first = get_trial(tx, run_id, 0)
        picture = score_plot(status, plotted(tx, run_id, status.standing.trials + 1, _MOST))
    best = status.best
    if best is None or not kept:
        raise ActFailed(
            f"none of {status.standing.trials} trials was better", hint=f"ratchet research status {run_id}"
        )
    problems = [each for trial in kept for each in evidence_of(stage.ledger, trial)["certificate_problems"]]
    if problems:
        raise ActFailed(
            f"a certificate does not hold: {problems[0]}", hint=f"ratchet research report {run_id}"
        )
    before, after = number(first.score), number(best.score)
    return Shown(
        headline=f"A program that packs 26 circles got better from {before} to {after} in "
        f"{status.standing.trials} trials.",
        facts={
            "baseline": before,
            "best": after,
            "trials": str(status.standing.trials),
            "kept, each with a certificate that holds": str(len(kept)),
        },
        real="All of it. The search changes constants of the program; each trial is a commit, run in a sandbox without "
        "network and measured by an evaluator that it cannot reach. What was kept carries a certificate, which was "
        "checked again for this page.",
        runs=(run_id,),
        look=(
            DemoCommand(f"ratchet research status {run_id}", "its progress, and its last trials"),
            DemoCommand(
                f"ratchet research trial {run_id} {best.exp_id}", "the best one, with its measurements"
            ),
            DemoCommand(f"ratchet research trial {run_id} {best.exp_id} --diff", "what it changed"),
            DemoCommand(f"ratchet research report {run_id}", "a page of its own"),
        ),
        pictures=(picture, _packed(stage, run_id, first, best)),
    )


def _packed(stage: DemoStage, run_id: int, first: Trial, best: Trial) -> Markup:
    """What the program packed before and packs now: it is run once more, to be looked at."""
    repository = research_directory(stage.loaded.home, run_id) / "repo.git"
    before, after = packings(repository, [first.commit or "", best.commit or ""])
    return draw_packings(
        {
            f"before: the radii make {number(first.score)}": before,
            f"after: the radii make {number(best.score)}": after,
        }
    )
