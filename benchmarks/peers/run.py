"""Runs a peer once and says how fast it was, from the times at which its model was asked."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks import tally
from benchmarks.peers.install import install
from benchmarks.peers.model import open_model
from benchmarks.peers.peer import Peer, Unavailable, Wanted
from benchmarks.stage import Stage, die_with_parent
from benchmarks.tree import TreeWatch

_RUN_SECONDS = 900.0
# A proposal may be turned down; when more are than this, the peer was not doing what is measured.
_LEAST_EVALUATED = 0.9


@dataclass(frozen=True, slots=True)
class Found:
    """Rates are iterations per second in the first and the last tenth; CPU is per iteration between those."""

    first: float
    last: float
    cpu_ms: float
    rss_mb: float


def run_peer(stage: Stage, peer: Peer, iterations: int) -> Found:
    """Install it if need be, and run it. Raises `Unavailable`."""
    programs = install(peer.name, peer.requirement)
    directory = stage.new_directory(peer.name)
    with open_model() as model:
        wanted = Wanted(directory, model.url, iterations, directory / "tally")
        program, *words = peer.prepare(wanted)
        process = start([str(programs / program), *words], directory)
        try:
            with TreeWatch(process.pid) as watch:
                status = process.wait(_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"not done after {_RUN_SECONDS:.0f} s, {len(model.calls)} calls") from None
        finally:
            stop(process)
    evaluated = tally.count(wanted.tally)
    if status != 0 or min(evaluated, len(model.calls)) < _LEAST_EVALUATED * iterations:
        raise Unavailable(
            f"ended with {status} after {len(model.calls)} calls and {evaluated} candidates: {last_line(directory)}"
        )
    return _found(model.calls, watch)


def _found(calls: Sequence[float], watch: TreeWatch) -> Found:
    tenth = max(1, len(calls) // 10)
    begin, end = calls[tenth], calls[-1 - tenth]
    return Found(
        first=tenth / (begin - calls[0]),
        last=tenth / (calls[-1] - end),
        cpu_ms=watch.cpu_between(begin, end) / (len(calls) - 1 - 2 * tenth) * 1000,
        rss_mb=watch.peak_mb,
    )


def start(
    command: list[str], directory: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A program of a peer, which keeps its files and its log in `directory`. Raises `Unavailable`."""
    # Nothing of this machine's configuration reaches a peer, and above all no key: its model is the local one alone.
    environment = {
        "PATH": f"{Path(command[0]).parent}:{os.environ['PATH']}",
        "HOME": str(directory),
        "NO_PROXY": "127.0.0.1",
        **(variables or {}),
    }
    with (directory / "log").open("wb") as log:
        try:
            return subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            # An environment that was moved, or only half removed.
            raise Unavailable(f"{command[0]} does not start: {error.strerror}; remove .venv-peers") from error


def stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_line(directory: Path) -> str:
    lines = (directory / "log").read_text(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "it said nothing")
