"""Why an environment could not be made."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ratchet.kernel import RatchetError

_LINES = 20


class SetupFailed(RatchetError):
    """A command of a project's set-up failed. `output` is the end of what it printed."""

    http_status = 409

    def __init__(self, argv: Sequence[str], why: str, output: str, *, hint: str | None = None) -> None:
        self.argv = tuple(argv)
        self.output = tail(output)
        said = "".join(f"\n  {line}" for line in self.output.splitlines())
        super().__init__(f"setting up the project failed: `{shlex.join(argv)}` {why}{said}", hint=hint)


def tail(text: str, most: int = _LINES) -> str:
    """The last lines that say something."""
    lines = [line.rstrip()[:500] for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-most:])
