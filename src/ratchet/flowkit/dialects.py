"""Older ways of writing a workflow, understood where their meaning is clear.

A step's `input` or `input_parameters` is its `input_mapping`, `output_key` its `output_name`, `input_from_step` a step
to wait for; `input_parameters` of a workflow are its `inputs`. In such inputs `{name}` means a workflow input or the
output of a step. The old keys stay where they were, next to the new ones, and are read only where those are absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OLD_KEYS = frozenset({"input", "input_parameters", "output_key", "input_from_step", "task_for_node"})
_PLACE = re.compile(r"(?<![\w{$])\{([A-Za-z_][\w-]*)((?:\.[\w-]+)*)\}")


class OldNames:
    """What `{name}` means in the inputs of an old step."""

    def __init__(self, inputs: Mapping[str, Any], steps: list[Any]) -> None:
        self._inputs = frozenset(inputs)
        self._outputs = {
            step["output_key"]: step.get("step_id")
            for step in steps
            if isinstance(step, Mapping) and isinstance(step.get("output_key"), str)
        }

    def translate(self, value: Any) -> Any:
        """The same inputs with `${…}` in place of each name that is known; all else stays as it is."""
        if isinstance(value, str):
            return _PLACE.sub(self._put, value)
        if isinstance(value, Mapping):
            return {key: self.translate(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.translate(inner) for inner in value]
        return value

    def _put(self, match: re.Match[str]) -> str:
        name, below = match[1], match[2]
        if name in self._inputs:
            return f"${{inputs.{name}{below}}}"
        if self._outputs.get(name) is not None:
            return f"${{steps.{self._outputs[name]}.{name}{below}}}"
        return match[0]
