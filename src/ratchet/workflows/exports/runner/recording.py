"""Answers of an earlier run, found by what the step was given then."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Recording:
    """One run: what it was given, what it came to, and what models answered in it, by the hash of what they got."""

    run: int
    simulated: bool
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict)

    def answer(self, name: str, values: Mapping[str, Any]) -> Any:
        """Raises `KeyError` for what was not recorded."""
        key = next((key for key in keys_of(name, values) if key in self.answers), name)
        return self.answers[key]


def keys_of(name: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """Under which keys an answer is kept: for this item of a list, since a model may answer the same question in two
    ways, and then for any item that is given the same."""
    return _key(name, values), _key(_INDEX.sub("", name), values)


def _key(name: str, values: Mapping[str, Any]) -> str:
    """Which question this is: the place in the workflow and everything that the step is given."""
    text = json.dumps([name, dict(values)], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_recording(data: Mapping[str, Any]) -> Recording:
    return Recording(data["run"], data["simulated"], data["inputs"], data["outputs"], data["answers"])


def write_recording(recording: Recording) -> dict[str, Any]:
    return {
        "run": recording.run,
        "simulated": recording.simulated,
        "inputs": dict(recording.inputs),
        "outputs": dict(recording.outputs),
        "answers": dict(recording.answers),
    }
