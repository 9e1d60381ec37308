"""Makes data for this task: `make_data.py CIFAR OUT` from the directory cifar-10-batches-bin, or `--tiny OUT`.

Images and labels of the test set are parted: the recipe is shown OUT/images, the evaluator OUT/labels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

BYTES, SIDE = 1 + 3 * 32 * 32, 8


def read_batches(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    rows = np.concatenate([np.fromfile(path, dtype=np.uint8).reshape(-1, BYTES) for path in paths])
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def invented(count: int, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Waves in ten directions and colours, with noise."""
    labels = chance.integers(0, 10, count)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    angle = labels[:, None, None] * np.pi / 10
    wave = np.sin(0.9 * (rows * np.sin(angle) + columns * np.cos(angle)))
    colours = np.random.default_rng(5).uniform(0.3, 1, (10, 3))[labels]
    clean = 128 + 70 * wave[..., None] * colours[:, None, None, :]
    return np.clip(clean + chance.normal(0, 50, clean.shape), 0, 255).astype(np.uint8), labels.astype(
        np.uint8
    )


def main(source: str, out: Path) -> None:
    if source == "--tiny":
        chance = np.random.default_rng(0)
        (images, labels), (unknown, hidden) = invented(600, chance), invented(200, chance)
    else:
        images, labels = read_batches(sorted(Path(source).glob("data_batch_*.bin")))
        unknown, hidden = read_batches([Path(source) / "test_batch.bin"])
    for name in ("images", "labels"):
        (out / name).mkdir(parents=True, exist_ok=True)
    np.savez(out / "images" / "images.npz", train_images=images, train_labels=labels, test_images=unknown)
    (out / "labels" / "labels.bin").write_bytes(hidden.tobytes())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
