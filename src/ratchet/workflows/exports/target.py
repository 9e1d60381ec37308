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
    """`cloud` asks hosted models, `edge` an Ollama nearby, `embedded` no model at all."""

    CLOUD = "cloud"
    EDGE = "edge"
    EMBEDDED = "embedded"
    WASM = "wasm"

    @property
    def providers(self) -> tuple[str, ...]:
        """Who may answer the model calls there."""
        return {Target.CLOUD: ("openai", "anthropic"), Target.EDGE: ("ollama",)}.get(self, ())


def read_target(text: str) -> Target:
    """Raises `Misuse` for a target that does not exist, or does not exist yet."""
    ready = [target.value for target in Target if target is not Target.WASM]
    hint = f"choose {', '.join(ready[:-1])} or {ready[-1]}"
    try:
        target = Target(text)
    except ValueError:
        raise Misuse(f"there is no export for {text!r}", hint=hint) from None
    if target is Target.WASM:
        raise Misuse("the export for wasm is not available yet", hint=hint)
    return target
