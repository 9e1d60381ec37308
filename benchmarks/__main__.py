"""`python -m benchmarks [--only NAME …] [--quick] [--peers] [--json FILE]`"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.result import Result
from benchmarks.scale import FULL, QUICK, Scale
from benchmarks.stage import Stage

# In this order: the quick and steady ones first, so that a broken set-up shows soon.
MEASURES = (
    "start",
    "events",
    "steps",
    "latency",
    "idle",
    "pages",
    "api",
    "console",
    "research_views",
    "nodes",
    "placement",
    "workflows",
    "workspaces",
    "loop",
    "research",
    "simulation",
    "strategies",
    "memory",
    "tools",
    "sessions",
    "agents",
    "protocols",
    "jobs",
)


def main() -> int:
    arguments = _parse()
    # Told to end, the run ends like one that was interrupted: its processes and files go with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _bytecode():
            scale = QUICK if arguments.quick else FULL
            scale = dataclasses.replace(
                scale,
                strategy_seeds=arguments.seeds or scale.strategy_seeds,
                strategy_calls=arguments.calls or scale.strategy_calls,
                strategy_runs=arguments.runs,
            )
            results = _run(arguments.only or list(MEASURES), scale, peers=arguments.peers)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([dataclasses.asdict(result) for result in results], indent=1))
    return 0


@contextlib.contextmanager
def _bytecode() -> Iterator[None]:
    """Let every process of the run start from compiled code, as an installed Ratchet does, and leave none behind."""
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-pyc-") as directory:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = directory
        yield


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", action="extend", choices=MEASURES, metavar="NAME", help=", ".join(MEASURES)
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer tries, smaller tables; its ratios are rough"
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="`research`, `strategies` and `workflows` next to others, installed into .venv-peers (1.5 GB) if need be",
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="runs of each side in `strategies`, instead of 10"
    )
    parser.add_argument("--calls", type=int, metavar="N", help="model calls of such a run, instead of 200")
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="FILE",
        help="`strategies` keeps runs that have ended there and resumes after an interruption; a new file for new code",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    return parser.parse_args()


def _run(names: list[str], scale: Scale, *, peers: bool) -> list[Result]:
    results = []
    began = time.monotonic()
    print(f"# Ratchet benchmarks\n\n{describe(scale)}\n", flush=True)
    for name in names:
        module = importlib.import_module(f"benchmarks.measures.{name}")
        # A stage for each, so that one measure's processes are gone before the next begins.
        with Stage(peers=peers) as stage:
            result: Result = module.measure(stage, scale)
        results.append(result)
        print(f"{result}\n", flush=True)
    goals = [goal for result in results for goal in result.goals]
    missed = [goal for goal in goals if not goal.met]
    took = f"{time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f} at the end"
    print(f"{len(goals) - len(missed)} of {len(goals)} goals met; took {took}")
    for goal in missed:
        print(f"- {goal}")
    return results


if __name__ == "__main__":
    sys.exit(main())
