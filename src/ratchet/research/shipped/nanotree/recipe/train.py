"""Learns a corpus, then answers questions about it: `train.py INPUTS OUT SEED`, with the questions as JSON on stdin.

Everything in this directory may be changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from answer import answers
from data import WINDOW, examples
from model import Model
from tokenizer import Tokenizer

EPOCHS = 5  # search: 1..16 log
BATCH = 128  # search: 16..512 log
RATE = 0.004  # search: 0.0003..0.1 log
WEIGHT_DECAY = 0.0  # search: 0.0..0.1
STEADY = 0.5  # search: 0.0..1.0


def main(inputs: Path, out: Path, seed: int) -> None:
    questions = json.load(sys.stdin)["question"]["questions"]
    text = (inputs / "corpus.txt").read_text()
    tokenizer = Tokenizer(text)
    chance = np.random.default_rng(seed)
    model = Model(len(tokenizer), WINDOW, chance)
    learn(model, *examples(text, tokenizer), chance)
    (out / "answers.json").write_text(json.dumps(answers(model, tokenizer, questions)))


def learn(model: Model, contexts: np.ndarray, targets: np.ndarray, chance: np.random.Generator) -> None:
    """Adam, at full rate for the `STEADY` part of the way and then down to nothing."""
    means = {name: np.zeros_like(weight) for name, weight in model.weights.items()}
    squares = {name: np.zeros_like(weight) for name, weight in model.weights.items()}
    batches = len(targets) // BATCH
    steps = EPOCHS * batches
    for step in range(steps):
        if step % batches == 0:
            order = chance.permutation(len(targets))
        batch = order[step % batches * BATCH :][:BATCH]
        rate = RATE * min(1.0, (1 - step / steps) / (1 - STEADY + 1e-9))
        for name, slope in model.slopes(contexts[batch], targets[batch]).items():
            means[name] += 0.1 * (slope - means[name])
            squares[name] += 0.02 * (slope * slope - squares[name])
            mean = means[name] / (1 - 0.9 ** (step + 1))
            square = squares[name] / (1 - 0.98 ** (step + 1))
            weight = model.weights[name]
            weight -= rate * (mean / (np.sqrt(square) + 1e-8) + WEIGHT_DECAY * weight)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
