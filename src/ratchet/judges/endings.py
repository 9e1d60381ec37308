"""How a sandboxed process ended: in words, for the record, and whose doing it was."""

from __future__ import annotations

import signal
from typing import Any

from ratchet.kernel import Outcome
from ratchet.sandbox import Finished, Stopped

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


def told(finished: Finished) -> str:
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
