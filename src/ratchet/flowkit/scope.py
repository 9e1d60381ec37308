"""What the references of one workflow can mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .mistakes import mistaken_references
from .naming import listed
from .references import Reference, find_references
from .spec import WorkflowInput, WorkflowSpec


@dataclass(frozen=True)
class Scope:
    """One workflow, `depth` inside others. `tools` are those that exist, if that is known."""

    spec: WorkflowSpec
    inputs: Mapping[str, WorkflowInput]
    outputs: Mapping[str, str]
    """The name of each step's output."""
    tools: frozenset[str] | None
    depth: int

    @classmethod
    def of(cls, spec: WorkflowSpec, tools: frozenset[str] | None, *, depth: int) -> Scope:
        return cls(
            spec,
            {each.name: each for each in spec.inputs},
            {step.step_id: step.output_name for step in spec.steps},
            None if tools is None else tools | spec.tool_definitions.keys(),
            depth,
        )

    def value_problems(self, value: Any, *, items: bool = False) -> Iterator[str]:
        """What is wrong with the references inside a value, and with what only looks like one."""
        if isinstance(value, str) and "." not in value and "{" not in value and not items:
            return
        yield from mistaken_references(value, items=items)
        for reference in find_references(value, items=items):
            yield from self.reference_problems(reference)

    def reference_problems(self, reference: Reference) -> Iterator[str]:
        """Why a reference means nothing here, if so."""
        if reference.kind == "inputs" and reference.name not in self.inputs:
            yield f"{reference}: there is no input {reference.name}{listed(reference.name, self.inputs)}"
        elif reference.kind == "steps":
            yield from self._step_problems(reference)

    def tool_problems(self, name: str) -> Iterator[str]:
        if self.tools is not None and name not in self.tools:
            yield f"there is no tool {name}{listed(name, self.tools)}"

    def _step_problems(self, reference: Reference) -> Iterator[str]:
        step_id = reference.name
        if step_id not in self.outputs:
            yield f"{reference}: there is no step {step_id}{listed(step_id, self.outputs)}"
        elif len(reference.path) == 1:
            yield f"{reference} names no output; write {reference}.{self.outputs[step_id]}"
        elif reference.path[1] not in (self.outputs[step_id], "output"):
            yield (
                f"{reference}: step {step_id} has no output {reference.path[1]};"
                f" it is called {self.outputs[step_id]}"
            )
