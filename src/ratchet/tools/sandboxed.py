"""Tools in the sandbox: their limits, their output while they run, and why they failed."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse
from ratchet.observe.logs import logger
from ratchet.sandbox import Bounds, Broken, CannotStart, Finished, Refused, Stopped
from ratchet.tools.call import Occasion, ToolFailed, ToolUse, no_listener
from ratchet.tools.definition import Tool

_log = logger(__name__)
_MIB = 1024 * 1024
_SAID = 4096
_SHOWN = 500
_MORE_MEMORY = "raise its constraints.max_memory_mb, or tools.memory_mb for all"


def report_output(occasion: Occasion, kind: str, text: str) -> None:
    """Pass `text` to the listener, if there is any. A listener that fails does not fail the call."""
    if not text:
        return
    try:
        occasion.listen(kind, {"text": text})
    except Exception as error:  # noqa: BLE001 - the tool continues, and its answer is what counts
        _log.warning("a listener to a tool failed", kind=kind, error=str(error))


SCRATCH = Path("/tmp")
"""Where a program of a tool starts: private, empty and in memory, gone afterwards."""
TIMED_OUT, NOT_FOUND = 124, 127
"""The exit codes of a shell for these two."""


def most_output(tool: Tool, occasion: Occasion) -> int:
    return tool.constraints.max_output_bytes or occasion.runtime.settings.tools.output_bytes


def bounds_for(tool: Tool, occasion: Occasion, seconds: float) -> Bounds:
    limits = tool.constraints
    memory = limits.max_memory_mb or occasion.runtime.settings.tools.memory_mb
    return Bounds(
        wall_seconds=seconds,
        memory_bytes=memory * _MIB,
        output_bytes=most_output(tool, occasion),
        file_bytes=(limits.max_db_size_mb or memory) * _MIB,
    )


def environment(*programs: Path) -> dict[str, str]:
    """The whole environment of a tool's program: nothing of ours is in it."""
    places = (*map(str, programs), str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin")
    return {
        "PATH": os.pathsep.join(dict.fromkeys(places)),
        "HOME": str(SCRATCH),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def as_json(value: Any) -> bytes:
    """Raises `ToolFailed` for inputs that are not JSON."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed(f"the inputs are not JSON: {error}", final=True) from None


def listener_to(occasion: Occasion) -> Callable[[bytes], None] | None:
    """What takes the pieces of stderr as they come; `None` if nothing listens."""
    if occasion.listen is no_listener:
        return None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    return lambda piece: report_output(occasion, "stderr", decoder.decode(piece))


def use_of(finished: Finished) -> ToolUse:
    code = finished.exit_code
    if finished.stopped is Stopped.WALL:
        code = TIMED_OUT
    elif finished.signal is not None:
        code = 128 + finished.signal
    return ToolUse(finished.wall_ms, finished.cpu_ms, finished.peak_bytes, code)


def said_by(finished: Finished) -> str:
    return finished.stderr[-_SAID:].decode(errors="replace")


def failure_of(tool: Tool, finished: Finished, bounds: Bounds) -> ToolFailed:
    """Why a run that is not `ok` is none, in words, and what to do about it."""
    why, hint = _failure_reason(finished, bounds)
    return ToolFailed(f"tool {tool.id} {why}", hint=hint, use=use_of(finished), said=said_by(finished))


@contextlib.contextmanager
def startable(tool: Tool) -> Iterator[None]:
    """What the sandbox raises when nothing was run, or nothing is known of it, becomes `ToolFailed`."""
    try:
        yield
    except (Refused, CannotStart, Misuse) as error:
        raise ToolFailed(f"tool {tool.id} cannot be started: {error}", hint=error.hint, final=True) from error
    except Broken as error:
        raise ToolFailed(f"tool {tool.id}: {error}", hint=error.hint) from error


def _failure_reason(finished: Finished, bounds: Bounds) -> tuple[str, str | None]:
    memory = f"{(bounds.memory_bytes or 0) // _MIB} MB of memory"
    match finished.stopped:
        case Stopped.WALL:
            return f"did not end within {bounds.wall_seconds:g} s", "raise its timeout, or give it less to do"
        case Stopped.MEMORY:
            return f"was killed: it used more than {memory}", _MORE_MEMORY
        case Stopped.OUTPUT:
            most = f"{bounds.output_bytes} bytes"
            return f"was killed: it printed more than {most}", "raise its constraints.max_output_bytes"
        case Stopped.PROCESSES:
            return f"was killed: it started more than {bounds.processes} processes", None
        case Stopped.CPU | Stopped.CANCELLED:
            return f"was {finished.problem}", None
    problem, last = finished.problem or "failed", _last_line(finished)
    if finished.signal is not None:
        return f"was {problem}, which Ratchet did not send", "look whether the machine ran out of memory"
    if finished.exit_code == 1 and last.startswith("MemoryError"):
        return f"failed: it needs more than {memory}", _MORE_MEMORY
    return f"failed: {problem}" + (f": {last}" if last and last not in problem else ""), None


def _last_line(finished: Finished) -> str:
    lines = said_by(finished).strip().splitlines()
    return lines[-1][:_SHOWN] if lines else ""
