"""Runs one trial: `run.py train` trains the recipe, `run.py answer` asks what it learned.

`--scale full` trains recipe.py with torch, on every GPU that the slot has; `--scale tiny` trains tiny.py with numpy.
What is left is the weights, the recipe and this file, which no recipe can change: the second process has nothing else.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import shutil
import sys
from array import array
from pathlib import Path
from typing import Any

RECIPES = {"full": "recipe", "tiny": "tiny"}
MISSING = 3


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("train", "answer"))
    parser.add_argument("--scale", choices=RECIPES)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int)
    asked = parser.parse_args()
    return train(asked) if asked.what == "train" else answer(asked.out)


def train(asked: Any) -> int:
    if asked.scale == "full" and "RANK" not in os.environ:
        import torch

        gpus = torch.cuda.device_count()
        if not gpus:
            print("torch finds no GPU; nanochat_d12:tiny runs on a CPU", file=sys.stderr)
            return MISSING
        if gpus > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
            os.execv(sys.executable, [sys.executable, *launcher, *sys.argv])
    vocab = json.loads((asked.train / "meta.json").read_text())["vocab"]
    name = RECIPES[asked.scale]
    weights = importlib.import_module(name).train(asked.train, vocab, asked.seed)
    if os.environ.get("RANK", "0") == "0":
        (asked.out / "weights.bin").write_bytes(weights)
        shutil.copy(f"{name}.py", asked.out / "recipe.py")
        shutil.copy(__file__, asked.out / "run.py")
    return 0


def answer(out: Path) -> int:
    """Choose an answer for each question, and say how likely each token was to follow each piece of text."""
    asked = json.load(sys.stdin)["question"]
    predict, weights = importlib.import_module("recipe").predict, Path("weights.bin").read_bytes()
    contexts, owners = [], []
    for number, (context, choices) in enumerate(asked["questions"]):
        for place, choice in enumerate(choices):
            contexts.append((array("H", [*context, *choice]), len(choice)))
            owners.append((number, place, choice))
    texts = array("H", base64.b64decode(asked["texts"]))
    length = asked["length"]
    # The token behind a text is asked for, and is not known here: any stands in its place.
    contexts += [(array("H", [*texts[at : at + length], 0]), 1) for at in range(0, len(texts), length)]
    best: dict[int, tuple[float, int]] = {}
    with (out / "scores.f32").open("wb") as file:
        for number, rows in enumerate(predict(weights, contexts)):
            if number >= len(owners):
                file.write(array("f", rows[0]).tobytes())
                continue
            question, place, choice = owners[number]
            likely = sum(float(row[token]) for row, token in zip(rows, choice, strict=True)) / len(choice)
            best[question] = max(best.get(question, (-float("inf"), 0)), (likely, -place))
    (out / "answers.json").write_text(json.dumps([-best[number][1] for number in sorted(best)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
