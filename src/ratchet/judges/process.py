"""Running a judge's command line: what it means, what it may see, and how long it may take."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.judges.judge import Deadline, OutOfTime
from ratchet.kernel import Misuse, Outcome
from ratchet.sandbox import Bounds, Finished, Node, Policy, Stopped, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """`name` in `file` is called in a sandboxed node: it is given one JSON value and returns one.

    `modules` are imported before it starts. A node can start no other process and writes nowhere.
    """

    file: str
    name: str
    modules: tuple[str, ...] = ()

    def node(self, source: str, directory: Path | None) -> Node:
        """The node that runs `source`. With a `directory` that it is shown, it can import what lies beside its file."""
        called = self.file if directory is None else str(directory / self.file)
        return Node(source, self.name, self.modules, file=called)


def check_one_way(who: str, argv: tuple[str, ...], function: Function | None) -> None:
    """Raise `Misuse` unless there is one way to run it."""
    if not argv and function is None:
        raise Misuse(f"the {who} has no command to run")
    if argv and function is not None:
        raise Misuse(f"the {who} has a command and a function", hint="leave one of them out")


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


_SHOWN = 64 * 1024
# What a shell and the sandbox exit with when there is no such program, or it may not be run.
NOT_RUN = (126, 127)
_STOPPED = {
    Stopped.WALL: "it did not end in time",
    Stopped.CPU: "it used more CPU time than it may",
    Stopped.MEMORY: "it used more memory than it may",
    Stopped.PROCESSES: "it started more processes than it may",
    Stopped.OUTPUT: "it wrote more output than it may",
    Stopped.CANCELLED: "it was cancelled",
}


def ending_text(finished: Finished) -> str:
    """How it ended, in words, with the last thing it said."""
    how = ended(finished)
    last = last_words(finished)
    return f"{how}: {last}" if last and not finished.ok else how


def ended(finished: Finished) -> str:
    """How it ended, in words."""
    if finished.stopped is not None:
        return _STOPPED[finished.stopped]
    if finished.signal is not None:
        return f"it was ended by {_signal_name(finished.signal)}"
    if finished.exit_code == 0 and finished.problem is not None:
        return f"it {finished.problem}"
    if finished.exit_code is not None:
        return f"it exited with {finished.exit_code}"
    return "it could not be run"


def last_words(finished: Finished) -> str:
    """The last line that it wrote."""
    return _last_line(finished.stderr) or _last_line(finished.stdout)


def over_time(finished: Finished) -> bool:
    """Whether it was stopped because it took too long."""
    return finished.stopped in (Stopped.WALL, Stopped.CPU)


def blame(finished: Finished) -> Outcome:
    """Who is to blame for a process that is not `ok`, when it ran the candidate's code.

    Too slow, too large, too loud, crashed, or a code other than 0: that is the candidate, which fails. A process that
    never ran, or that we ended ourselves, says nothing of it: that is an error.
    """
    ran = finished.stopped is not None or finished.signal is not None or finished.exit_code is not None
    ours = finished.stopped is Stopped.CANCELLED or finished.exit_code in NOT_RUN
    return Outcome.FAILED if ran and not ours else Outcome.ERROR


def described(finished: Finished, *, tail: int = _SHOWN) -> dict[str, Any]:
    """What is recorded of it, output included as far as it is short."""
    return {
        "exit_code": finished.exit_code,
        "signal": finished.signal,
        "stopped": finished.stopped,
        "problem": finished.problem,
        "wall_ms": finished.wall_ms,
        "cpu_ms": finished.cpu_ms,
        "peak_bytes": finished.peak_bytes,
        "layers": finished.layers,
        "stdout": _tail(finished.stdout, tail),
        "stderr": _tail(finished.stderr, tail),
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(output: bytes) -> str:
    lines = output[-4096:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""


def _tail(output: bytes, most: int) -> str:
    text = output[-most:].decode("utf-8", "replace")
    return text if len(output) <= most else f"… ({len(output) - most} bytes before this) {text}"
