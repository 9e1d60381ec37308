"""What a protocol is to do, as a value: its steps, who carries them out, how they are judged, and what they write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class QaPolicy(StrEnum):
    """How a step is judged: by checks and a reviewer, by a brief review, or by nobody."""

    FULL = "full"
    LIGHT = "light"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Outputs:
    """Paths that the session's text is written to: `protocol`, and others by name."""

    protocol: str | None = None
    aux: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> dict[str, str]:
        """All of them by name."""
        return {**({} if self.protocol is None else {"protocol": self.protocol}), **self.aux}


@dataclass(frozen=True, slots=True)
class Qa:
    """Who reviews a step and how. No policy means `full`."""

    policy: QaPolicy | None = None
    prompt: str | None = None
    model: str | None = None
    engine_id: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step. `prompt_ref` is a path in the protocol's folder or in the repository.

    `depends_on` has names or ids of steps; nothing means that it follows those before it. Steps of one `parallel_group`
    may run at once. `inputs` are told to who carries it out. `policies` are as they were written;
    `ratchet.protocols.policies` reads them.
    """

    id: str
    engine_id: str | None
    prompt_ref: str
    qa: Qa
    name: str | None = None
    description: str | None = None
    model: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=Outputs)
    step_type: str | None = None
    policies: tuple[Mapping[str, Any], ...] = ()
    order: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    parallel_group: str | None = None

    @property
    def called(self) -> str:
        """What the step is called in the ledger."""
        return self.name or self.id

    @property
    def kind(self) -> str:
        """Its type: as it says, or as its name tells."""
        return self.step_type or infer_step_type(self.called)


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """A whole protocol. Its steps are in the order in which they are numbered."""

    steps: tuple[StepSpec, ...]
    version: str | int | None = None
    placeholders: Mapping[str, Any] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


def infer_step_type(name: str) -> str:
    """`setup`, `qa` or `work`, by what the name says."""
    lower = name.lower()
    if lower.startswith("00-") or "setup" in lower:
        return "setup"
    return "qa" if "qa" in lower else "work"
