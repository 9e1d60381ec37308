"""One process of a contender: `python -m benchmarks.child client|worker|both SIDE PLACE`."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from benchmarks.sides import Side, open_side
from benchmarks.stage import die_with_parent


def main() -> None:
    die_with_parent()
    logging.disable(logging.WARNING)
    role, side_name, place = sys.argv[1:]
    side = open_side(side_name, json.loads(place))
    if role == "worker":
        side.work()
        return
    if role == "both":
        side.work_here()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_answer(side, request.pop("do"), request)), flush=True)


def _answer(side: Side, do: str, arguments: dict[str, Any]) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    value = getattr(side, do)(**arguments)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "value": value,
    }


if __name__ == "__main__":
    main()
