"""Workflows that cannot be used, for a person and for a model to put right."""

from __future__ import annotations

from ratchet.kernel import Misuse, RatchetError


class BadPlan(RatchetError):
    """A plan that cannot be used. `problems` has a sentence for each thing that is wrong."""

    http_status = 502

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"the plan cannot be used: {'; '.join(problems)}", hint="ask for a corrected plan")
        self.problems = problems


class UnreadableWorkflow(Misuse):
    """A workflow file that cannot be read. `problems` has a sentence for each thing that is wrong."""

    def __init__(self, file: str, problems: list[str]) -> None:
        super().__init__(
            f"{file}: {'; '.join(problems)}",
            hint="correct the file; docs/workflow-format.md describes the format",
        )
        self.file = file
        self.problems = problems
