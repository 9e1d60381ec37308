"""Runs one trial: trains the recipe and packs what it learned. The recipe cannot change this file.

`--scale full` trains recipe.py with torch, on every GPU that the slot has; `--scale tiny` trains tiny.py with numpy.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from pathlib import Path

import pack_submission

RECIPES = {"full": "recipe", "tiny": "tiny"}
MISSING = 3


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", choices=RECIPES, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    asked = parser.parse_args()
    if asked.scale == "full" and "RANK" not in os.environ:
        import torch

        gpus = torch.cuda.device_count()
        if not gpus:
            print("torch finds no GPU; parameter_golf:tiny runs on a CPU", file=sys.stderr)
            return MISSING
        if gpus > 1:
            launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
            os.execv(sys.executable, [sys.executable, *launcher, *sys.argv])
    vocab = json.loads((asked.train / "meta.json").read_text())["vocab"]
    name = RECIPES[asked.scale]
    weights = importlib.import_module(name).train(asked.train, vocab, asked.seed)
    if os.environ.get("RANK", "0") == "0":
        packed = pack_submission.pack(Path(f"{name}.py"), weights, vocab, asked.out)
        print(json.dumps(packed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
