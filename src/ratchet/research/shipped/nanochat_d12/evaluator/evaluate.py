"""The CORE metric: how many questions of each task were answered better than by guessing, and the mean over the tasks.

A file of `core` is a task, a line of it a question: the tokens of a context, of each choice, and the number of the
right one. For each task the share of right answers is moved and stretched so that guessing is 0 and perfect is 1. Bits
per byte of unseen text are measured beside it. Every other question and text is for the held-out split.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import stat
from array import array
from collections import defaultdict
from pathlib import Path
from typing import Any

CORE, VAL = Path("/data/core"), Path("/data/val")
MAGIC, HEADER = 20240520, 1024
MOST_ANSWERS = 4_000_000


class Invalid(Exception):
    """What was left does not count."""


def prepare(asked: dict[str, Any]) -> dict[str, Any]:
    about, texts, _ = drawn_texts(asked["seed"], asked["held_out"])
    shuffled, _ = drawn(asked["seed"], asked["held_out"])
    return {
        "vocab": about["vocab"],
        "length": about["length"],
        "questions": [(each["context"], each["choices"]) for each in shuffled],
        "texts": base64.b64encode(texts.tobytes()).decode(),
    }


def score(asked: dict[str, Any]) -> dict[str, Any]:
    trial = asked["trial"]
    shuffled, right = drawn(asked["seed"], asked["held_out"])
    about, _, targets = drawn_texts(asked["seed"], asked["held_out"])
    facts = {"train_s": trial["trained"]["wall_ms"] / 1000, "eval_s": trial["wall_ms"] / 1000}
    try:
        answers = read_answers(Path(trial["out"]) / "answers.json", shuffled)
        facts["val_bpb"] = bits_per_byte(Path(trial["out"]) / "scores.f32", targets, about)
    except Invalid as invalid:
        return {"invalid": str(invalid), "status": "disqualified", "measurements": facts}
    hits: dict[str, list[bool]] = defaultdict(list)
    chances: dict[str, list[float]] = defaultdict(list)
    for question, answer, wanted in zip(shuffled, answers, right, strict=True):
        hits[question["task"]].append(answer == wanted)
        chances[question["task"]].append(1 / len(question["choices"]))
    centred = {task: centre(hits[task], chances[task]) for task in hits}
    measurements = {**facts, **{f"core_{task}": value for task, value in centred.items()}}
    return {"core_metric": sum(centred.values()) / len(centred), "measurements": measurements}


def centre(hits: list[bool], chances: list[float]) -> float:
    chance = sum(chances) / len(chances)
    return (sum(hits) / len(hits) - chance) / (1 - chance)


def drawn(seed: int, held_out: bool) -> tuple[list[dict[str, Any]], list[int]]:
    """The questions and their choices in an order that the seed decides, and where the right choices are."""
    found = []
    for path in sorted(CORE.glob("*.jsonl")):
        lines = path.read_text().splitlines()[int(held_out) :: 2]
        found += [{**json.loads(line), "task": path.stem} for line in lines]
    chance = random.Random(f"{seed} {held_out}")
    chance.shuffle(found)
    right = []
    for question in found:
        order = chance.sample(range(len(question["choices"])), len(question["choices"]))
        question["choices"] = [question["choices"][place] for place in order]
        right.append(order.index(question["gold"]))
    return found, right


def drawn_texts(seed: int, held_out: bool) -> tuple[dict[str, Any], array[int], list[int]]:
    """Pieces of text that do not touch each other, one behind the other, and the token that follows each."""
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
    texts, targets = array("H"), []
    for piece in chosen:
        start = piece * (length + 1)
        texts.extend(tokens[start : start + length])
        targets.append(tokens[start + length])
    return about, texts, targets


def bits_per_byte(path: Path, targets: list[int], about: dict[str, Any]) -> float:
    vocab, lengths = about["vocab"], about["token_bytes"]
    found = array("f", read_plain(path, 4 * vocab * len(targets), exactly=True))
    bits = text_bytes = 0.0
    for number, target in enumerate(targets):
        row = found[number * vocab : (number + 1) * vocab]
        most = max(row)
        total = sum(math.exp(each - most) for each in row)
        if not math.isfinite(total) or not math.isfinite(most):
            raise Invalid(f"the scores of text {number} are not all finite numbers")
        bits += (most + math.log(total) - row[target]) / math.log(2)
        text_bytes += lengths[target]
    return bits / text_bytes


def read_answers(path: Path, questions: list[dict[str, Any]]) -> list[int]:
    try:
        answers = json.loads(read_plain(path, MOST_ANSWERS))
    except (ValueError, RecursionError):
        raise Invalid(f"{path.name} is not JSON") from None
    if not isinstance(answers, list) or len(answers) != len(questions):
        raise Invalid(f"{path.name} is not a list of {len(questions)} answers, one for each question")
    for number, (answer, question) in enumerate(zip(answers, questions, strict=True)):
        most = len(question["choices"]) - 1
        if type(answer) is not int or not 0 <= answer <= most:
            raise Invalid(f"answer {number} is {answer!r:.40}; it is a whole number from 0 to {most}")
    return answers


def read_plain(path: Path, size: int, *, exactly: bool = False) -> bytes:
    """The content of a plain file of this size, or of at most this size. A link, a pipe or a directory is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid(f"{path.name} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Invalid(f"{path.name} is not a plain file")
        if about.st_size > size or (exactly and about.st_size != size):
            raise Invalid(f"{path.name} has {about.st_size} bytes; {size} are asked for")
        return file.read(size)
