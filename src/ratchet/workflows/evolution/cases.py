"""What a variant is tried on: the tool's own examples, and real inputs that its author never saw."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from ratchet.tools.definition import Tool, ToolType
from ratchet.tools.examples import difference

_WRONG = "another answer than the right one"


class Origin(StrEnum):
    EXAMPLE = "example"
    HELD_OUT = "held-out input"


class Recorded(Protocol):
    """A call on record."""

    @property
    def ok(self) -> bool: ...

    @property
    def score(self) -> float | None: ...

    @property
    def input(self) -> Any: ...

    @property
    def output(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Case:
    """Values, and what must come of them. Where nothing is `exact`, any answer that fits the tool's schema is right.

    `recorded` is what came of it when it was called for real, if that was kept.
    """

    origin: Origin
    values: Mapping[str, Any]
    expected: Any = None
    exact: bool = False
    recorded: Any = None

    def complaint(self, value: Any) -> str | None:
        """What is wrong with an answer. Of a held-out input nothing is told."""
        found = difference(value, self.expected) if self.exact else None
        return _WRONG if found is not None and self.origin is Origin.HELD_OUT else found

    def answered(self, value: Any, again: Any) -> Case:
        """The case, now that the incumbent has answered it twice.

        A real input must be answered as the incumbent does, if that always answers in the same way: one that draws lots
        or looks at the clock gives no answer to be held to.
        """
        if self.origin is Origin.EXAMPLE:
            return self
        as_before = self.recorded is None or difference(value, self.recorded) is None
        return replace(self, expected=value, exact=as_before and difference(value, again) is None)


def example_cases(tool: Tool) -> list[Case]:
    """The examples that say what must come of them."""
    return [
        Case(Origin.EXAMPLE, example.input, example.output, exact=True)
        for example in tool.examples
        if example.checked
    ]


def held_out_cases(tool: Tool, calls: Iterable[Recorded], most: int, *, low: float) -> list[Case]:
    """Up to `most` different real inputs that were answered well, chosen by their hash: nobody picks them.

    What stands among the examples is known to the author and is none.
    """
    known = {input_hash(example.input) for example in tool.examples}
    found: dict[str, Case] = {}
    for call in calls:
        if not call.ok or not isinstance(call.input, dict) or (call.score is not None and call.score < low):
            continue
        name = input_hash(call.input)
        if name not in known and name not in found:
            found[name] = Case(Origin.HELD_OUT, call.input, recorded=call.output)
    return [found[name] for name in sorted(found)[:most]]


def write_cases(cases: Sequence[Case]) -> bytes:
    """Real inputs as they are kept for a run that is begun again."""
    return json.dumps([[case.values, case.recorded] for case in cases]).encode()


def read_cases(data: bytes) -> list[Case]:
    return [Case(Origin.HELD_OUT, values, recorded=recorded) for values, recorded in json.loads(data)]


def input_hash(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_repeatable(tool: Tool) -> bool:
    """Whether one input should give one answer. A model is asked again and answers differently."""
    return tool.type is not ToolType.LLM
