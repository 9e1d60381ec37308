"""A small language model in numpy: the last tokens are looked up, one hidden layer, Adam. All of it may be changed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

WINDOW = 8  # search: 2..16
WIDTH = 16  # search: 4..64 log
HIDDEN = 64  # search: 16..256 log
STEPS = 300  # search: 50..800 log
BATCH = 128  # search: 32..512 log
RATE = 0.01  # search: 0.001..0.1 log


def train(data: Path, vocab: int, seed: int) -> bytes:
    tokens = np.concatenate([np.fromfile(path, dtype="<u2") for path in sorted(data.glob("*.bin"))])
    chance = np.random.default_rng(seed)
    weights = {
        "table": chance.normal(0, 0.3, (vocab, WIDTH)),
        "first": chance.normal(0, (WINDOW * WIDTH) ** -0.5, (WINDOW * WIDTH, HIDDEN)),
        "last": chance.normal(0, HIDDEN**-0.5, (HIDDEN, vocab)),
        "often": np.log(np.bincount(tokens, minlength=vocab) + 1.0),
    }
    means = {name: np.zeros_like(each) for name, each in weights.items()}
    squares = {name: np.zeros_like(each) for name, each in weights.items()}
    for step in range(STEPS):
        at = chance.integers(WINDOW, len(tokens), BATCH)
        contexts = tokens[at[:, None] + np.arange(-WINDOW, 0)]
        slopes = slopes_of(weights, contexts, tokens[at])
        rate = RATE * (1 - step / STEPS)
        for name, slope in slopes.items():
            means[name] += 0.1 * (slope - means[name])
            squares[name] += 0.02 * (slope**2 - squares[name])
            mean, square = means[name] / (1 - 0.9 ** (step + 1)), squares[name] / (1 - 0.98 ** (step + 1))
            weights[name] = weights[name] - rate * mean / (np.sqrt(square) + 1e-8)
    kept = io.BytesIO()
    np.savez(kept, **{name: each.astype(np.float16) for name, each in weights.items()})
    return kept.getvalue()


def forward(
    weights: dict[str, np.ndarray], contexts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    looked_up = weights["table"][contexts].reshape(len(contexts), -1)
    hidden = np.tanh(looked_up @ weights["first"])
    return looked_up, hidden, hidden @ weights["last"] + weights["often"]


def slopes_of(
    weights: dict[str, np.ndarray], contexts: np.ndarray, targets: np.ndarray
) -> dict[str, np.ndarray]:
    looked_up, hidden, scores = forward(weights, contexts)
    likely = np.exp(scores - scores.max(1, keepdims=True))
    off = likely / likely.sum(1, keepdims=True)
    off[np.arange(len(targets)), targets] -= 1
    off /= len(targets)
    back = (off @ weights["last"].T) * (1 - hidden**2)
    table = np.zeros_like(weights["table"])
    np.add.at(table, contexts, (back @ weights["first"].T).reshape(*contexts.shape, -1))
    return {"table": table, "first": looked_up.T @ back, "last": hidden.T @ off, "often": off.sum(0)}


def predict(weights: bytes, contexts: Sequence[tuple[Sequence[int], int]]) -> Iterator[np.ndarray]:
    with np.load(io.BytesIO(weights), allow_pickle=False) as kept:
        model = {name: kept[name].astype(np.float64) for name in kept.files}
    for tokens, asked in contexts:
        whole = np.concatenate([np.zeros(WINDOW, dtype=np.int64), np.asarray(tokens, dtype=np.int64)])
        ends = np.arange(len(whole) - asked, len(whole))
        scores = forward(model, whole[ends[:, None] + np.arange(-WINDOW, 0)])[-1]
        yield scores - np.log(np.exp(scores).sum(1, keepdims=True))
