"""Answers multiple-choice questions: the choice that the model finds most likely behind the context."""

from __future__ import annotations

from typing import Any

import numpy as np
from data import window
from model import Model
from tokenizer import Tokenizer

ENDS = False  # search: True | False


def answers(model: Model, tokenizer: Tokenizer, questions: list[dict[str, Any]]) -> list[int]:
    """The number of a choice for each question. With `ENDS` the sentence must also end well behind the choice."""
    contexts, targets, owners = [], [], []
    for number, question in enumerate(questions):
        before = tokenizer.encode(question["context"])
        for choice, text in enumerate(question["choices"]):
            tokens = tokenizer.encode(f"{text} ." if ENDS else text)
            for place, token in enumerate(tokens):
                contexts.append(window(before + tokens[:place]))
                targets.append(token)
                owners.append((number, choice))
    likely = model.log_likely(np.array(contexts))[np.arange(len(targets)), targets]
    most = max(len(question["choices"]) for question in questions)
    worth = np.zeros((len(questions), most))
    np.add.at(worth, tuple(np.array(owners).T), likely)
    return [
        int(row[: len(question["choices"])].argmax()) for row, question in zip(worth, questions, strict=True)
    ]
