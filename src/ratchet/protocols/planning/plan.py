"""A plan as a value: its texts, its steps, and what it asks people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """`name` is that of its file without the ending, such as `01-add-login`; `depends_on` has such names."""

    name: str
    content: str
    title: str | None = None
    depends_on: tuple[str, ...] = ()
    parallel_group: str | None = None
    step_type: str | None = None
    qa: str | None = None
    engine: str | None = None
    needs_decomposition: bool | None = None

    @property
    def file(self) -> str:
        return f"{self.name}.md"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to people that came with a plan."""

    key: str
    question: str
    options: tuple[str, ...] = ()
    recommended: str | None = None
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Its steps are in the order of their numbers."""

    plan_md: str
    context_md: str
    log_md: str
    steps: tuple[PlannedStep, ...]
    questions: tuple[Asked, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """What `data` gave."""
        steps = tuple(
            PlannedStep(**{**each, "depends_on": tuple(each["depends_on"])}) for each in data["steps"]
        )
        asked = tuple(Asked(**{**each, "options": tuple(each["options"])}) for each in data["questions"])
        return cls(data["plan_md"], data["context_md"], data["log_md"], steps, asked)

    def with_contents(self, contents: Mapping[str, str]) -> Self:
        """The same plan with other texts for some steps."""
        steps = tuple(replace(step, content=contents.get(step.name, step.content)) for step in self.steps)
        return replace(self, steps=steps)

    def files(self) -> dict[str, str]:
        """Every file of the protocol's folder, by its name there."""
        own = {"plan.md": self.plan_md, "context.md": self.context_md, "log.md": self.log_md}
        return own | {step.file: step.content for step in self.steps}
