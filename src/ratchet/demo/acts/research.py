"""A program gets better: real search on a real task, every trial measured in a sandbox, every keep with its proof."""

from __future__ import annotations

from ratchet.demo.packing import draw_packings, packings
from ratchet.demo.shown import Command, Shown
from ratchet.demo.stage import ActFailed, Stage
from ratchet.kernel import TrialStatus
from ratchet.ledger import Event
from ratchet.ledger.trial_pages import kept_trials
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import get_trial
from ratchet.research.campaign import research_directory
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.views import evidence_of, read_status
from ratchet.research.views._report import score_plot
from ratchet.research.views.markup import Markup
from ratchet.research.views.plot import plotted
from ratchet.research.views.text import number

TASK = "circle_packing"
TRIALS = 40
# One session at a time, so that the same machine finds the same again.
_SEED, _PARALLEL = 5, 1
_MOST = 1000


def act(stage: Stage) -> Shown:
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


def _tell(stage: Stage, event: Event) -> None:
    if event.type in ("trial.baseline", "trial.keep"):
        word = "the program as it is scores" if event.type == "trial.baseline" else "is better and kept:"
        stage.say(f"trial {event.data['exp_id']} {word} {event.data['score']:.5f}")


def _shown(stage: Stage, run_id: int) -> Shown:
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
            Command(f"ratchet research status {run_id}", "where it stands, and its last trials"),
            Command(f"ratchet research trial {run_id} {best.exp_id}", "the best one, with its measurements"),
            Command(f"ratchet research trial {run_id} {best.exp_id} --diff", "what it changed"),
            Command(f"ratchet research report {run_id}", "a page of its own"),
        ),
        pictures=(picture, _packed(stage, run_id, first, best)),
    )


def _packed(stage: Stage, run_id: int, first: Trial, best: Trial) -> Markup:
    """What the program packed before and packs now: it is run once more, to be looked at."""
    repository = research_directory(stage.loaded.home, run_id) / "repo.git"
    before, after = packings(repository, [first.commit or "", best.commit or ""])
    return draw_packings(
        {
            f"before: the radii make {number(first.score)}": before,
            f"after: the radii make {number(best.score)}": after,
        }
    )
