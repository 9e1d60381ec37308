"""What can be wrong with a workflow, and with a step that runs."""

from __future__ import annotations


class SpecError(Exception):
    """A workflow that cannot run as it is written. `problems` has one sentence for each thing that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class StepFailed(Exception):
    """A try at a step that came to nothing. `final` says that trying again cannot help."""

    def __init__(
        self,
        reason: str,
        *,
        final: bool = False,
        metrics: dict[str, object] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.final = final
        self.metrics = metrics or {}
        self.hint = hint


class Held(Exception):
    """A step that cannot go on until something outside happens, such as the answer of a person."""
