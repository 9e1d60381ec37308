"""Runs seeds: python -m tests.faults FIRST COUNT. Prints the plan of each that breaks something."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections import Counter

from tests.faults import shim

LIBRARY = "LD_PRELOAD"


def main() -> int:
    given = argparse.ArgumentParser("python -m tests.faults")
    given.add_argument("first", type=int, help="the first seed")
    given.add_argument("count", type=int, nargs="?", default=1, help="how many")
    given.add_argument("--at-once", type=int, default=4, help="how many side by side")
    given.add_argument("--plant", default="", help="a bug to be found: unsynced, unfenced")
    given.add_argument(
        "--sweep", type=int, default=0, help="cut the power at each so many calls of one life, instead"
    )
    given.add_argument("--keep", action="store_true", help="keep the home of each seed that breaks something")
    options = given.parse_args()
    if not os.environ.get(LIBRARY):
        # A library is loaded before a program starts, or not at all.
        environment = {**os.environ, LIBRARY: str(shim.library())}
        os.execve(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]], environment)
    from tests.faults.plan import make_plan, repeat_command
    from tests.faults.runner import Databases, make_template, run_seeds, scratch, sweep

    began = time.monotonic()
    directory = scratch()
    kinds: Counter[str] = Counter()
    failed = fired = 0
    databases = Databases(directory)
    seeds = list(range(options.first, options.first + options.count))
    try:
        template = make_template(directory)
        if options.sweep:
            cuts, broken = sweep(template, options.sweep)
            print(*broken, f"{cuts} power cuts, {len(broken)} broken", sep="\n")
            return 1 if broken or not cuts else 0
        for found in run_seeds(seeds, template, databases, options):
            kinds[found.kind] += 1
            fired += found.fired
            if options.count == 1 or found.broken:
                print(f"{'FAILED ' if found.broken else ''}{make_plan(found.seed)}")
                print(f"  {found.seconds:.1f} s, {found.fired} of its faults happened")
            if found.broken:
                failed += 1
                for line in found.broken:
                    print(f"  broken: {line}")
                print(f"  repeat it: {repeat_command(found.seed)}", flush=True)
    finally:
        databases.close()
        shutil.rmtree(directory, ignore_errors=True)
    told = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    used = os.times()
    processors = used.user + used.system + used.children_user + used.children_system
    print(
        f"{kinds.total()} seeds ({told}), {fired} faults, {failed} failed,"
        f" {time.monotonic() - began:.0f} s ({processors:.0f} s of processors)"
    )
    return 1 if failed or kinds.total() != options.count else 0


if __name__ == "__main__":
    sys.exit(main())
