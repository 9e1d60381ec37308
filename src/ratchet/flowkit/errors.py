"""What can be wrong with a workflow, and with a step that runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

MOST = 100
LONGEST = 500


def trimmed(problems: Iterable[str]) -> list[str]:
    """The first problems, each once. Those beyond are not even looked for."""
    found = list(islice(dict.fromkeys(islice(problems, 2 * MOST)), MOST + 1))
    kept = [one if len(one) <= LONGEST else f"{one[: LONGEST - 1]}…" for one in found[:MOST]]
    return [*kept, "and further problems"] if len(found) > MOST else kept


class SpecError(Exception):
    """A workflow that cannot run as it is written. `problems` has one sentence for each thing that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class StepFailed(Exception):
    """A try at a step that failed. `final` says that trying again cannot help, and `blocks` that it can once
    a person has changed something: unless another tool stands in, the step is held until then."""

    def __init__(
        self,
        reason: str,
        *,
        final: bool = False,
        metrics: dict[str, object] | None = None,
        hint: str | None = None,
        blocks: bool = False,
    ) -> None:
        super().__init__(reason)
        self.final = final
        self.blocks = blocks
        self.metrics = metrics or {}
        self.hint = hint


class StepHeld(Exception):
    """A step that cannot continue until something outside happens, such as the answer of a person."""
