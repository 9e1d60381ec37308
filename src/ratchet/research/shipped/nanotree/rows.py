"""Prints what the README compares, measured here and now: `python rows.py`. Means over three seeds."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "evaluator"))

from evaluate import prepare, score  # noqa: E402 - the evaluator is no package

SEEDS = (100, 101, 102)
KINDS = ("core", "core_facts", "core_agreement", "core_sums", "core_bindings")


def main() -> None:
    known = json.loads((FOLDER / "known_best.json").read_text())
    print(f"{'':45} {'':8} {' '.join(f'{kind:>14}' for kind in KINDS)}")
    row("plain: the most frequent continuation", FOLDER / "plain.py")
    row("the recipe as it comes", FOLDER / "recipe" / "train.py")
    with tempfile.TemporaryDirectory() as place:
        changed = Path(place, "recipe")
        shutil.copytree(FOLDER / "recipe", changed)
        for path in changed.glob("*.py"):
            path.write_text(with_constants(path.read_text(), known))
        row("known best: the recipe with other constants", changed / "train.py")


def row(name: str, program: Path) -> None:
    for split, held_out in {"inputs": False, "held_out": True}.items():
        told = [measured(program, split, held_out, seed) for seed in SEEDS]
        means = " ".join(f"{fmean(each[kind] for each in told):14.3f}" for kind in KINDS)
        print(f"{name if split == 'inputs' else '':45} {split:8} {means}")


def with_constants(text: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        text = re.sub(rf"(?m)^{name} = .*?(?=  # search:)", f"{name} = {value!r}", text)
    return text


def measured(program: Path, split: str, held_out: bool, seed: int) -> dict[str, float]:
    asked = {"seed": seed, "held_out": held_out}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [sys.executable, program, FOLDER / split, out, str(seed)],
            input=json.dumps({"seed": seed, "question": prepare(asked)}).encode(),
            env=environment,
            check=True,
        )
        answer = score({**asked, "trial": {"out": out}})
    return {"core": answer["core"], **answer["measurements"]}


if __name__ == "__main__":
    main()
