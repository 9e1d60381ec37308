"""Prints the tables of docs/research-keeping.md: python -m tests.research.decision.figures"""

from __future__ import annotations

from statistics import fmean

from ratchet.research.adapter import KeepRule
from tests.research.decision.simulated import World, coarse, heavy, simulate
from tests.research.decision.test_whole_runs import NOISE, simulate_run

TRIALS = 2000
RUNS, PLANNED = 400, 200
WORLDS = {
    "3 worse": World(-3.0),
    "1 worse": World(-1.0),
    "no better": World(0.0),
    "no better, seeds shared": World(0.0, shared=0.95),
    "no better, noise from the seed alone": World(0.0, seeded=True),
    "no better, 4 times as noisy": World(0.0, wilder=4.0),
    "no better, heavy tails": World(0.0, draw=heavy),
    "no better, coarse steps": World(0.0, draw=coarse),
    "0.5 better": World(0.5),
    "0.5 better, seeds shared": World(0.5, shared=0.95),
    "0.5 better, seeds shared, noise from the seed alone": World(0.5, shared=0.95, seeded=True),
    "1 better": World(1.0),
    "2 better": World(2.0),
    "3 better": World(3.0),
}


def main() -> None:
    print("| challenger | kept | measurements | score of the kept, too high by |\n|---|---|---|---|")
    for name, world in WORLDS.items():
        outcome = simulate(world, trials=TRIALS)
        scores = [each.score - world.gain for each in outcome.kept]
        flattered = f"{fmean(scores):+.2f}" if len(scores) >= 50 else ""
        print(f"| {name} | {outcome.rate:.1%} | {outcome.measurements:.1f} | {flattered} |", flush=True)
    small_gains()


def small_gains() -> None:
    """The first trial of a run of 200, with noise that the seed has nothing or nine tenths to do with."""
    print("\n| true gain, in spreads | `find_effect` | noise | kept | measurements |\n|---|---|---|---|---|")
    for gain in (0.0, 0.5, 1.0, 2.0, 3.0):
        for find in (0.0, 0.5) if gain < 1 else (0.0,):
            for shared, noise in ((0.0, "independent"), (0.9, "nine tenths from the seed")):
                rule = KeepRule(find_effect=find * NOISE)
                runs = [
                    simulate_run(5000 + seed, [gain * NOISE], rule, shared, planned=PLANNED)
                    for seed in range(RUNS)
                ]
                kept, cost = fmean(bool(run.keeps) for run in runs), fmean(run.measurements for run in runs)
                print(f"| {gain:g} | {find:g} | {noise} | {kept:.1%} | {cost:.0f} |", flush=True)


if __name__ == "__main__":
    main()
