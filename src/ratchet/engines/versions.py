"""Asking an agent's program for its version, and refusing one that is too old."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.supervision import Invocation, try_out

_SECONDS = 30.0
NOWHERE = {"PATH": os.defpath, "HOME": "/nonexistent"}


async def version_of(
    path: Path, pattern: re.Pattern[bytes], oldest: tuple[int, ...], *, mend: str, update: str
) -> str:
    """What `path --version` tells by `pattern`. Raises `Fault` if that is nothing, or older than `oldest`."""
    asking = Invocation((str(path), "--version"), Path("/"), NOWHERE, network=False)
    finished = await try_out(asking, _SECONDS)
    told = pattern.search(finished.stdout) if finished.ok else None
    if told is None:
        said = (finished.stderr or finished.stdout).decode(errors="replace").strip()[:200]
        raise Fault(
            Failure.MISSING,
            f"{path} --version does not tell the version that it should: {said or finished.problem or 'nothing'}",
            hint=mend,
        )
    number = tuple(map(int, told.groups()))
    if number < oldest:
        raise Fault(
            Failure.MISSING,
            f"{path} is version {_dotted(number)}; at least {_dotted(oldest)} is needed",
            hint=update,
        )
    return _dotted(number)


def _dotted(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))
