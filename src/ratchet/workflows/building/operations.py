"""What kind of operation a step is, guessed from the words of its description."""

from __future__ import annotations

import re

from ratchet.flowkit.spec import OperationType

# The first kind of which a word occurs is taken, so the order is part of the meaning.
_WORDS: dict[OperationType, str] = {
    OperationType.GENERATOR: "generate create write make build produce compose draft invent",
    OperationType.TRANSFORMER: "transform convert translate change modify format rewrite summarize summarise parse",
    OperationType.VALIDATOR: "validate check verify test confirm ensure",
    OperationType.COMBINER: "combine merge join aggregate concatenate unite",
    OperationType.SPLITTER: "split divide separate break partition chunk",
    OperationType.FILTER: "filter select remove exclude find search",
}


def infer_operation_type(text: str) -> OperationType:
    """The operation that a description names with a whole word; one that names none generates something."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    for kind, known in _WORDS.items():
        if words & set(known.split()):
            return kind
    return OperationType.GENERATOR
