"""Where an export is to run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ratchet.kernel import Misuse


class NotExportable(Misuse):
    """`reasons` has one sentence for each step that stands in the way."""

    def __init__(self, target: Target, reasons: Sequence[str]) -> None:
        super().__init__(
            f"this workflow cannot be exported for {target}: {'; '.join(reasons)}",
            hint="change these steps, choose another target, or name what is missing",
        )
        self.target = target
        self.reasons = tuple(reasons)


class Target(StrEnum):
    """`cloud` asks hosted models, `edge` an Ollama nearby; `embedded` and `wasm` ask none and need no network, and
    `wasm` runs in WebAssembly."""

    CLOUD = "cloud"
    EDGE = "edge"
    EMBEDDED = "embedded"
    WASM = "wasm"

    @property
    def providers(self) -> tuple[str, ...]:
        """Who may answer the model calls there."""
        return {Target.CLOUD: ("openai", "anthropic"), Target.EDGE: ("ollama",)}.get(self, ())

    @property
    def alone(self) -> bool:
        """Whether there is nothing there but Python: no models, services, people or packages."""
        return not self.providers


def read_target(text: str) -> Target:
    """Raises `Misuse` for a target that does not exist."""
    try:
        return Target(text)
    except ValueError:
        known = [target.value for target in Target]
        hint = f"choose {', '.join(known[:-1])} or {known[-1]}"
        raise Misuse(f"there is no export for {text!r}", hint=hint) from None
