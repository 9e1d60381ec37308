"""Runs one process of a trial: images in, one class for each test image out. The recipe cannot change this file.

`--scale full` calls recipe.py, which needs torch and a GPU; `--scale tiny` calls tiny.py, which needs numpy.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import numpy as np

RECIPES = {"full": "recipe", "tiny": "tiny"}
MISSING = 3


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", choices=RECIPES, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    asked = parser.parse_args()
    if asked.scale == "full":
        import torch

        if not torch.cuda.is_available():
            print("torch finds no GPU; cifar_airbench96:tiny runs on a CPU", file=sys.stderr)
            return MISSING
    with np.load(asked.images / "images.npz", allow_pickle=False) as data:
        arrays = data["train_images"], data["train_labels"], data["test_images"]
    found = importlib.import_module(RECIPES[asked.scale]).predict(*arrays, asked.seed)
    (asked.out / "predictions.bin").write_bytes(np.asarray(found).astype(np.uint8).tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
