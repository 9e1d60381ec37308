"""What can be wrong with a spec as a whole."""

from __future__ import annotations

from ratchet.kernel import Misuse

_SHOWN = 5


class SpecInvalid(Misuse):
    """A spec that cannot be carried out. `problems` has everything that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        super().__init__(
            f"the spec is invalid: {'; '.join(problems[:_SHOWN])}{more}",
            hint="`ratchet spec schema` prints what a spec looks like, `ratchet spec validate` every problem",
        )
        self.problems = problems
