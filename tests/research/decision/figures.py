"""Prints the table of docs/research-keeping.md: python -m tests.research.decision.figures"""

from __future__ import annotations

from statistics import fmean

from tests.research.decision.simulated import World, coarse, heavy, simulate

TRIALS = 2000
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


if __name__ == "__main__":
    main()
