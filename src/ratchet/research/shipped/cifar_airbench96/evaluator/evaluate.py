"""The mean time of the processes of a measurement, if together they name enough images right.

Times are those of the sandbox, from the start of a process to its end. The gate compares whole numbers.
"""

from __future__ import annotations

import os
import stat
import statistics
from pathlib import Path
from typing import Any

LABELS = Path("/data/labels/labels.bin")
GATE = (96, 100)


class Invalid(Exception):
    """What was left does not count."""


def score(asked: dict[str, Any]) -> dict[str, Any]:
    labels, trials = LABELS.read_bytes(), asked["trials"]
    try:
        correct = [count_correct(Path(trial["out"]) / "predictions.bin", labels) for trial in trials]
    except Invalid as invalid:
        return {"invalid": str(invalid), "status": "disqualified"}
    walls = [float(trial["wall_ms"]) / 1000 for trial in trials]
    shares = [each / len(labels) for each in correct]
    measurements = {
        "accuracy": sum(correct) / (len(labels) * len(trials)),
        "acc_std": statistics.stdev(shares) if len(shares) > 1 else 0.0,
        "n_seeds": len(trials),
        "slowest_s": max(walls),
    }
    answer = {"train_s": statistics.fmean(walls), "measurements": measurements}
    total = len(trials) * len(labels)
    if sum(correct) * GATE[1] < GATE[0] * total:
        needed = -(-GATE[0] * total // GATE[1])
        reason = f"{sum(correct):,} of {total:,} predictions are right; the gate is at {needed:,}"
        return {**answer, "invalid": reason, "status": "disqualified"}
    return answer


def count_correct(path: Path, labels: bytes) -> int:
    found = read_plain(path, len(labels))
    if max(found) > 9:
        raise Invalid(f"{path.name} has a byte {max(found)}; a class is one from 0 to 9")
    return sum(guess == label for guess, label in zip(found, labels, strict=True))


def read_plain(path: Path, size: int) -> bytes:
    """The content of a plain file of exactly this size. A link, a pipe or a directory is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid(f"{path.name} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Invalid(f"{path.name} is not a plain file")
        if about.st_size != size:
            raise Invalid(f"{path.name} has {about.st_size} bytes; {size} images need {size}")
        return file.read(size)
