"""Times the processes of one measurement, if together they read enough digits right.

Each process has left `predictions.bin`: one byte from 0 to 9 for each unlabelled image. Times are the sandbox's. The
gate is one of whole numbers: at least 96 of every 100 predictions of all processes together.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
PROCESSES = 5
GATE = (96, 100)


class Invalid(Exception):
    """What was left does not count."""


def score(asked: dict[str, Any]) -> dict[str, Any]:
    labels = (FOLDER / ("held_out_labels.bin" if asked["held_out"] else "labels.bin")).read_bytes()
    trials = asked["trials"]
    if len(trials) != PROCESSES:
        raise ValueError(f"a measurement is {PROCESSES} processes, and this one has {len(trials)}")
    try:
        correct = [count_correct(Path(trial["out"]), labels) for trial in trials]
    except Invalid as invalid:
        return {"invalid": str(invalid), "status": "disqualified"}
    total = PROCESSES * len(labels)
    if sum(correct) * GATE[1] < GATE[0] * total:
        needed = -(-GATE[0] * total // GATE[1])
        return {
            "invalid": f"{sum(correct)} of {total} predictions are right; the gate is at {needed}",
            "status": "disqualified",
        }
    walls = [float(trial["wall_ms"]) for trial in trials]
    return {
        "train_ms": sum(walls) / PROCESSES,
        "measurements": {
            "correct": sum(correct),
            "accuracy": sum(correct) / total,
            "worst_correct": min(correct),
            "fastest_ms": min(walls),
            "slowest_ms": max(walls),
        },
    }


def count_correct(out: Path, labels: bytes) -> int:
    found = read_plain(out / "predictions.bin", len(labels))
    if max(found) > 9:
        raise Invalid(f"predictions.bin has a byte {max(found)}; a digit is one from 0 to 9")
    return sum(guess == label for guess, label in zip(found, labels, strict=True))


def read_plain(path: Path, size: int) -> bytes:
    """The content of a plain file of exactly this size. A link, a pipe or a directory is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid(f"{path.name} cannot be read: {error.strerror}") from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Invalid(f"{path.name} is not a plain file")
        if about.st_size != size:
            raise Invalid(f"{path.name} has {about.st_size} bytes; {size} images need {size}")
        content = os.read(descriptor, size)
    finally:
        os.close(descriptor)
    if len(content) != size:
        raise Invalid(f"{path.name} ended early")
    return content


if __name__ == "__main__":
    json.dump(score(json.load(sys.stdin)), sys.stdout)
