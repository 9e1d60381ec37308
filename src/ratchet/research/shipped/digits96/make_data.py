"""Makes the data of this task from scikit-learn's digits: `python make_data.py`, where scikit-learn is installed.

The digits are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI Machine
Learning Repository, 1998), which is licensed under CC BY 4.0. What is changed: the order, and in the held-out split
the images are turned and the classes renamed, so that nothing that was worked out beforehand fits both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

FOLDER = Path(__file__).resolve().parent
SEED = 96
TEST = 350


def main() -> None:
    digits = load_digits()
    chance = np.random.default_rng(SEED)
    order = chance.permutation(len(digits.target))
    images = digits.images[order].astype(np.uint8)
    labels = digits.target[order].astype(np.uint8)
    test, held_out, train = slice(0, TEST), slice(TEST, 2 * TEST), slice(2 * TEST, None)
    write("inputs", images[train], labels[train], images[test])
    (FOLDER / "evaluator" / "labels.bin").write_bytes(labels[test].tobytes())

    turned = np.ascontiguousarray(np.rot90(images, axes=(1, 2)))
    renamed = chance.permutation(10).astype(np.uint8)[labels]
    write("held_out", turned[train], renamed[train], turned[held_out])
    (FOLDER / "evaluator" / "held_out_labels.bin").write_bytes(renamed[held_out].tobytes())


def write(name: str, train_images: np.ndarray, train_labels: np.ndarray, test_images: np.ndarray) -> None:
    (FOLDER / name).mkdir(exist_ok=True)
    np.savez_compressed(
        FOLDER / name / "digits.npz",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
    )


if __name__ == "__main__":
    main()
