"""Asks multiple-choice questions and says how many were answered better than by guessing.

The process has left `answers.json`: a list with the number of a choice for each question, in the order in which they
were asked. For each kind of question the share of right answers is moved and stretched so that guessing is 0 and
perfect is 1; the score is the mean over the kinds.
"""

from __future__ import annotations

import json
import os
import random
import stat
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
LARGEST = 65_536


class Invalid(Exception):
    """What was left does not count."""


def prepare(asked: dict[str, Any]) -> dict[str, Any]:
    """The questions as the recipe sees them: nothing tells the right choice, not even its place."""
    shuffled, _ = drawn(asked["seed"], asked["held_out"])
    return {"questions": [{"context": each["context"], "choices": each["choices"]} for each in shuffled]}


def score(asked: dict[str, Any]) -> dict[str, Any]:
    shuffled, right = drawn(asked["seed"], asked["held_out"])
    try:
        answers = read_answers(Path(asked["trial"]["out"]) / "answers.json", shuffled)
    except Invalid as invalid:
        return {"invalid": str(invalid), "status": "disqualified"}
    hits: dict[str, list[bool]] = defaultdict(list)
    chances: dict[str, list[float]] = defaultdict(list)
    for question, answer, wanted in zip(shuffled, answers, right, strict=True):
        hits[question["kind"]].append(answer == wanted)
        chances[question["kind"]].append(1 / len(question["choices"]))
    centred = {kind: centre(hits[kind], chances[kind]) for kind in hits}
    return {
        "core": sum(centred.values()) / len(centred),
        "measurements": {
            **{f"core_{kind}": value for kind, value in centred.items()},
            "right": sum(map(sum, hits.values())),
            "questions": len(answers),
        },
    }


def drawn(seed: int, held_out: bool) -> tuple[list[dict[str, Any]], list[int]]:
    """The questions and their choices in an order that the seed decides, and where the right choices are."""
    kept = json.loads((FOLDER / "questions.json").read_text())["held_out" if held_out else "visible"]
    chance = random.Random(seed)
    chance.shuffle(kept)
    shuffled, right = [], []
    for question in kept:
        order = chance.sample(range(len(question["choices"])), len(question["choices"]))
        shuffled.append({**question, "choices": [question["choices"][place] for place in order]})
        right.append(order.index(0))
    return shuffled, right


def centre(hits: list[bool], chances: list[float]) -> float:
    chance = sum(chances) / len(chances)
    return (sum(hits) / len(hits) - chance) / (1 - chance)


def read_answers(path: Path, questions: list[dict[str, Any]]) -> list[int]:
    try:
        answers = json.loads(read_plain(path).decode("utf-8"))
    except (ValueError, RecursionError):
        raise Invalid(f"{path.name} is not JSON") from None
    if not isinstance(answers, list) or len(answers) != len(questions):
        raise Invalid(f"{path.name} is not a list of {len(questions)} answers, one for each question")
    for number, (answer, question) in enumerate(zip(answers, questions, strict=True)):
        most = len(question["choices"]) - 1
        if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer <= most:
            raise Invalid(f"answer {number} is {answer!r:.40}; it is a whole number from 0 to {most}")
    return answers


def read_plain(path: Path) -> bytes:
    """The content of a plain file that is not far too large. A link, a pipe or a directory is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Invalid(f"{path.name} cannot be read: {error.strerror}") from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Invalid(f"{path.name} is not a plain file")
        if about.st_size > LARGEST:
            raise Invalid(f"{path.name} has {about.st_size} bytes; {LARGEST} are more than enough")
        return os.read(descriptor, LARGEST)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    json.dump(score(json.load(sys.stdin)), sys.stdout)
