"""From sentences to what the model learns: a window of tokens, and the one that follows."""

from __future__ import annotations

import numpy as np
from tokenizer import START, Tokenizer

WINDOW = 3  # search: 2..14


def window(tokens: list[int]) -> list[int]:
    """The last tokens, with as many starts before them as are missing."""
    return ([START] * WINDOW + tokens)[-WINDOW:]


def examples(text: str, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    contexts, targets = [], []
    for line in text.splitlines():
        tokens = tokenizer.encode(line)
        for place, token in enumerate(tokens):
            contexts.append(window(tokens[:place]))
            targets.append(token)
    return np.array(contexts), np.array(targets)
