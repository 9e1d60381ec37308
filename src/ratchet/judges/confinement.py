"""Running a judge's command line: what it means, what it may see, and how long it may take."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ratchet.judges.deadline import Deadline, OutOfTime
from ratchet.sandbox import Bounds, Finished, Node, Policy, Stopped, run

_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    # A cache beside a module is one more file that somebody could have written.
    "PYTHONDONTWRITEBYTECODE": "1",
}


async def run_confined(
    work: Sequence[str] | Node,
    *,
    cwd: Path | None = None,
    bounds: Bounds,
    policy: Policy,
    deadline: Deadline,
    words: Mapping[str, object] | None = None,
    places: Mapping[Path, Path] | None = None,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Finished:
    """Run a command or a node in the sandbox, with these directories and variables on top of `policy`.

    In a command, `{python}` and the names in `words` are filled in; other braces stay, since they may be meant. Raises
    `OutOfTime` when the deadline did not leave the time that `bounds` promise, and what the sandbox raises.
    """
    allowed = deadline.cut(bounds)
    texts = {"python": sys.executable, **(words or {})}
    finished = await run(
        work if isinstance(work, Node) else [_filled(word, texts) for word in work],
        cwd=cwd,
        stdin=stdin,
        bounds=allowed,
        policy=replace(
            policy,
            readable=tuple(dict.fromkeys((*policy.readable, *readable))),
            writable=tuple(dict.fromkeys((*policy.writable, *writable))),
            places={**policy.places, **(places or {})},
            environment={**_ENVIRONMENT, **policy.environment, **(environment or {})},
        ),
    )
    if finished.stopped is Stopped.WALL and allowed != bounds:
        raise OutOfTime
    return finished


def _filled(word: str, texts: Mapping[str, object]) -> str:
    for name, text in texts.items():
        word = word.replace(f"{{{name}}}", str(text))
    return word
