"""Learns the labelled digits and says what the unlabelled ones are: `recipe.py INPUTS OUT SEED`.

The whole run is timed from outside, from the start of the process to its end. Everything here may be changed.
"""

import sys
from pathlib import Path

import numpy as np

HIDDEN = 192  # search: 12..512 log
EPOCHS = 48  # search: 4..64 log
BATCH = 24  # search: 8..256 log
RATE = 0.06  # search: 0.005..1.0 log
MOMENTUM = 0.9  # search: 0.0..0.98
WEIGHT_DECAY = 0.0005  # search: 0.00001..0.01 log
SMOOTHING = 0.05  # search: 0.0..0.3
SHIFTED = 0.3  # search: 0.0..0.8
WARM_UP = 0.1  # search: 0.0..0.5
SPREAD = 1.0  # search: 0.3..3.0 log


def main(inputs: Path, out: Path, seed: int) -> None:
    with np.load(inputs / "digits.npz", allow_pickle=False) as data:
        images, labels = data["train_images"], data["train_labels"]
        unlabelled = data["test_images"]
    chance = np.random.default_rng(seed)
    weights = learn(scaled(images), np.eye(10, dtype=np.float32)[labels], chance)
    logits = forward(weights, scaled(unlabelled).reshape(len(unlabelled), -1))[-1]
    (out / "predictions.bin").write_bytes(logits.argmax(axis=1).astype(np.uint8).tobytes())


def scaled(images: np.ndarray) -> np.ndarray:
    return images.astype(np.float32) / 8 - 1


def learn(images: np.ndarray, targets: np.ndarray, chance: np.random.Generator) -> list[np.ndarray]:
    weights = beginning(chance)
    speeds = [np.zeros_like(each) for each in weights]
    targets = targets * (1 - SMOOTHING) + SMOOTHING / 10
    steps_per_epoch = len(images) // BATCH
    steps = EPOCHS * steps_per_epoch
    for epoch in range(EPOCHS):
        order = chance.permutation(len(images))
        flat = moved(images, chance).reshape(len(images), -1)[order]
        wanted = targets[order]
        for number in range(steps_per_epoch):
            batch = slice(number * BATCH, (number + 1) * BATCH)
            rate = RATE * schedule((epoch * steps_per_epoch + number) / steps)
            for weight, speed, slope in zip(
                weights, speeds, slopes(weights, flat[batch], wanted[batch]), strict=True
            ):
                speed *= MOMENTUM
                speed -= rate * (slope + WEIGHT_DECAY * weight)
                weight += speed
    return weights


def beginning(chance: np.random.Generator) -> list[np.ndarray]:
    first = chance.standard_normal((64, HIDDEN), dtype=np.float32) * (SPREAD / 8)
    second = chance.standard_normal((HIDDEN, 10), dtype=np.float32) * (SPREAD / HIDDEN**0.5)
    return [first, np.zeros(HIDDEN, np.float32), second, np.zeros(10, np.float32)]


def schedule(progress: float) -> float:
    """Up to one, then down to zero."""
    if progress < WARM_UP:
        return progress / WARM_UP
    return (1 - progress) / (1 - WARM_UP)


def moved(images: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """A part of the images moved by one pixel, each its own way."""
    result = images.copy()
    which = np.flatnonzero(chance.random(len(images)) < SHIFTED)
    for axis, step, some in zip((1, 1, 2, 2), (1, -1, 1, -1), np.array_split(which, 4), strict=True):
        result[some] = np.roll(images[some], step, axis=axis)
    return result


def forward(weights: list[np.ndarray], flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(flat @ weights[0] + weights[1], 0)
    return hidden, hidden @ weights[2] + weights[3]


def slopes(weights: list[np.ndarray], flat: np.ndarray, wanted: np.ndarray) -> list[np.ndarray]:
    hidden, logits = forward(weights, flat)
    likely = np.exp(logits - logits.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    error = (likely - wanted) / len(flat)
    back = (error @ weights[2].T) * (hidden > 0)
    return [flat.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
