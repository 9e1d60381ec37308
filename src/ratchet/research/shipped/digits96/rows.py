"""Prints what the README compares, measured here and now: `python rows.py`. The times are this machine's."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "evaluator"))

from evaluate import PROCESSES, score  # noqa: E402 - the evaluator is no package

FLOOR = """
import sys
import numpy as np
with np.load(sys.argv[1] + "/digits.npz", allow_pickle=False) as data:
    count = len(data["test_images"])
open(sys.argv[2] + "/predictions.bin", "wb").write(bytes(count))
"""


def main() -> None:
    recipe = (FOLDER / "recipe.py").read_text()
    known = json.loads((FOLDER / "known_best.json").read_text())
    row("floor: numpy and the data, no learning", FLOOR)
    row("plain: the nearest labelled digit", (FOLDER / "plain.py").read_text())
    row("the recipe as it comes", recipe)
    row("known best: the recipe with other constants", with_constants(recipe, known))


def row(name: str, program: str) -> None:
    print(
        f"{name:45} {measured(program, held_out=False)} held out: {measured(program, held_out=True)}".rstrip()
    )


def with_constants(text: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        text = re.sub(rf"(?m)^{name} = .*?(?=  # search:)", f"{name} = {value!r}", text)
    return text


def measured(program: str, *, held_out: bool) -> str:
    inputs = FOLDER / ("held_out" if held_out else "inputs")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "recipe.py")
        path.write_text(program)
        trials = []
        cpu_before = used()
        for seed in range(PROCESSES):
            out = Path(place, str(seed))
            out.mkdir()
            began = time.perf_counter()
            subprocess.run([sys.executable, path, inputs, out, str(seed)], check=True, env=environment)
            trials.append({"out": str(out), "wall_ms": (time.perf_counter() - began) * 1000})
        cpu_ms = (used() - cpu_before) * 1000 / PROCESSES
        answer = score({"seed": 0, "held_out": held_out, "trials": trials})
    wall_ms = fmean(trial["wall_ms"] for trial in trials)
    told = "fails the gate" if "invalid" in answer else f"{answer['measurements']['correct']} right"
    return f"{wall_ms:5.0f} ms ({cpu_ms:4.0f} of CPU), {told:14}"


def used() -> float:
    """The seconds of CPU time that finished processes have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
