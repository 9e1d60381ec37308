"""Prints what the README compares, measured here and now: `python rows.py`."""

from __future__ import annotations

import json
import lzma
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "evaluator"))

from evaluate import SIZE_CAP, score  # noqa: E402 - the evaluator is no package

BYTES_PER_PAIR = 3


def main() -> None:
    train = (FOLDER / "inputs" / "train.txt").read_bytes()
    splits = [(FOLDER / "evaluator" / name).read_bytes() for name in ("valid.txt", "held_out.txt")]
    row("lzma, which learns as it goes", 0, *(8 * len(lzma.compress(text)) / len(text) for text in splits))
    for order in (1, 2, 3):
        told = [exact(train, text, order) for text in splits]
        row(f"plain: all counts up to order {order}", told[0][0], *(bits for _, bits in told))
    recipe = (FOLDER / "recipe.py").read_text()
    row("the recipe as it comes", *measured(recipe))
    known = json.loads((FOLDER / "known_best.json").read_text())
    row("known best: the recipe with other constants", *measured(with_constants(recipe, known)))


def row(name: str, size: float, valid: float, held_out: float) -> None:
    fits = "" if size <= SIZE_CAP else "  too large"
    print(f"{name:45} {size:7.0f} bytes  {valid:.4f} bits per byte  {held_out:.4f} held out{fits}")


def exact(train: bytes, text: bytes, longest: int) -> tuple[int, float]:
    """The size and the cost of an n-gram model that keeps everything, with the evaluator's mixing and alpha = 1."""
    pairs = [
        Counter(train[at - order : at + 1] for at in range(order, len(train))) for order in range(longest + 1)
    ]
    contexts = [
        Counter(train[at - order : at] for at in range(order, len(train))) for order in range(longest + 1)
    ]
    bits = 0.0
    for at, byte in enumerate(text):
        likely = 1 / 256
        for order in range(min(longest, at) + 1):
            context = text[at - order : at]
            likely = (pairs[order][context + bytes([byte])] + likely) / (contexts[order][context] + 1)
        bits -= math.log2(likely)
    return BYTES_PER_PAIR * sum(map(len, pairs)), bits / len(text)


def with_constants(text: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        text = re.sub(rf"(?m)^{name} = .*?(?=  # search:)", f"{name} = {value!r}", text)
    return text


def measured(recipe: str) -> tuple[float, float, float]:
    """The size and the two scores of the model that this text of a recipe makes."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "recipe.py")
        path.write_text(recipe)
        subprocess.run([sys.executable, path, FOLDER / "inputs", place], check=True)
        told = [score({"held_out": held_out, "trial": {"out": place}}) for held_out in (False, True)]
    return told[0]["measurements"]["artifact_bytes"], told[0]["bits_per_byte"], told[1]["bits_per_byte"]


if __name__ == "__main__":
    main()
