"""The gate: set-up, lint, types, layers, tests. `lint` on the command line leaves out set-up and tests.

Stops when a part fails, and says how long each took. What does not need the other runs side by side.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

BIN = ".venv/bin"
MAKE = os.environ.get("MAKE", "make")
PYTEST = f"{BIN}/pytest --gate"
PARTS = {
    "set-up": f"{MAKE} --no-print-directory setup",
    "lint": f"{BIN}/ruff format --check -q . && {BIN}/ruff check -q .",
    # mypy gives its workers three seconds to start, which a loaded machine may not have: then it exits with 2.
    "types": f"{BIN}/mypy --num-workers 2 || {{ code=$?; [ $code = 2 ] && {BIN}/mypy; }}",
    # No cache: a cached graph misses imports of a package that is new.
    "layers": f"{BIN}/lint-imports --no-logo --no-cache",
    # One process prepares every test module, or each test process would do so for all of them.
    "collect": f"{PYTEST} --collect-only -qq >.pytest_collected || {{ tail -50 .pytest_collected; false; }}",
    "tests": f"{PYTEST} -n {os.environ.get('TEST_WORKERS', '3')} --dist worksteal --durations=10"
    f" --durations-min=0 {os.environ.get('PYTEST_ARGS', '')}",
}
STATIC = [["lint"], ["types", "layers"]]
WHOLE = [["set-up"], ["lint"], ["types", "layers", "collect"], ["tests"]]


def run(part: str) -> tuple[str, int, float]:
    print(f"== {part}: {PARTS[part]}", flush=True)
    began = time.monotonic()
    code = subprocess.run(PARTS[part], shell=True, check=False).returncode
    return part, code, time.monotonic() - began


def main() -> int:
    began = time.monotonic()
    done: list[tuple[str, int, float]] = []
    for together in STATIC if sys.argv[1:] == ["lint"] else WHOLE:
        with ThreadPoolExecutor() as side_by_side:
            done += side_by_side.map(run, together)
        if any(code for _, code, _ in done):
            break
    print(f"\n{'part':10}{'seconds':>9}")
    for part, code, seconds in done:
        print(f"{part:10}{seconds:9.0f}{'  failed' if code else ''}")
    print(f"{'all':10}{time.monotonic() - began:9.0f}")
    return max(code for _, code, _ in done)


if __name__ == "__main__":
    sys.exit(main())
