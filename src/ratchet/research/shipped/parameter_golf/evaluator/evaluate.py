"""Bits per byte of tokens that no recipe has seen, and whether the submission is within its size.

The contexts are pieces of the validation text that do not touch each other, so none of them tells what follows another.
The submission says for each how likely every token is to come next; which token came is known here alone. Its scores
are made probabilities here, so they cannot add up to more than one. Every other piece is for the held-out split.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import stat
from array import array
from pathlib import Path
from typing import Any

VAL = Path("/data/golf-val")
LIMIT = 16_000_000
MAGIC, HEADER = 20240520, 1024
NAMES = {"submission.py", "weights.xz"}


class Invalid(Exception):
    """What was left does not count."""

    def __init__(self, reason: str, status: str = "disqualified") -> None:
        super().__init__(reason)
        self.status = status


def prepare(asked: dict[str, Any]) -> dict[str, Any]:
    about, contexts, _ = drawn(asked["seed"], asked["held_out"])
    return {
        "vocab": about["vocab"],
        "length": about["length"],
        "contexts": base64.b64encode(contexts.tobytes()).decode(),
    }


def score(asked: dict[str, Any]) -> dict[str, Any]:
    trial = asked["trial"]
    about, _, targets = drawn(asked["seed"], asked["held_out"])
    facts = {"train_s": trial["trained"]["wall_ms"] / 1000, "eval_s": trial["wall_ms"] / 1000}
    try:
        facts |= sizes(Path(trial["trained"]["out"]))
        val_bpb = bits_per_byte(Path(trial["out"]) / "scores.f32", targets, about)
    except Invalid as invalid:
        return {"invalid": str(invalid), "status": invalid.status, "measurements": facts}
    answer = {"val_bpb": val_bpb, "measurements": {**facts, "contexts": len(targets)}}
    if facts["artifact_bytes"] > LIMIT:
        over = facts["artifact_bytes"] - LIMIT
        return {
            **answer,
            "invalid": f"{over:,} bytes too many: {LIMIT:,} are allowed",
            "status": "size_blocked",
        }
    return answer


def drawn(seed: int, held_out: bool) -> tuple[dict[str, Any], array[int], list[int]]:
    """The contexts of this seed, one behind the other, and the token that follows each."""
    about = json.loads((VAL / "meta.json").read_text())
    length = about["length"]
    tokens = array("H")
    for path in sorted(VAL.glob("*.bin")):
        content = path.read_bytes()
        if array("I", content[:4])[0] == MAGIC:
            content = content[HEADER:]
        tokens.frombytes(content[: len(content) // 2 * 2])
    pieces = range(int(held_out), len(tokens) // (length + 1), 2)
    chosen = random.Random(f"{seed} {held_out}").sample(pieces, min(about["contexts"], len(pieces)))
    contexts, targets = array("H"), []
    for piece in chosen:
        start = piece * (length + 1)
        contexts.extend(tokens[start : start + length])
        targets.append(tokens[start + length])
    return about, contexts, targets


def bits_per_byte(path: Path, targets: list[int], about: dict[str, Any]) -> float:
    vocab, lengths = about["vocab"], about["token_bytes"]
    found = array("f", read_plain(path, 4 * vocab * len(targets)))
    bits = text_bytes = 0.0
    for number, target in enumerate(targets):
        row = found[number * vocab : (number + 1) * vocab]
        most = max(row)
        total = sum(math.exp(each - most) for each in row)
        if not math.isfinite(total) or not math.isfinite(most):
            raise Invalid(f"the scores of context {number} are not all finite numbers")
        bits += (most + math.log(total) - row[target]) / math.log(2)
        text_bytes += lengths[target]
    return bits / text_bytes


def sizes(out: Path) -> dict[str, float]:
    names = {path.name for path in out.iterdir()}
    if names != NAMES:
        raise Invalid(
            f"a submission is {' and '.join(sorted(NAMES))}, and this is {', '.join(sorted(names))[:200]}"
        )
    each = {name: (out / name).lstat().st_size for name in NAMES}
    return {"artifact_bytes": sum(each.values()), "code_bytes": each["submission.py"]}


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
            raise Invalid(f"{path.name} has {about.st_size} bytes; a number for each token needs {size}")
        return file.read(size)
