"""The peers of `workflows`, and one run of each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.install import install
from benchmarks.peers.peer import Unavailable
from benchmarks.peers.run import last_line, start, stop
from benchmarks.stage import Stage
from benchmarks.tree import TreeWatch

_RUN_SECONDS = 1800.0
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class DagPeer:
    name: str
    title: str
    requirements: str
    keeps: str
    """What of a run is on disk while it runs."""
    variables: Mapping[str, str] = field(default_factory=dict)


# As they come, but for what would ask the internet or wait too short for a busy machine. The FastAPI is one that this
# Prefect starts with.
DAG_PEERS = (
    DagPeer(
        "prefect",
        "Prefect 3.8.8",
        "prefect==3.8.8 fastapi==0.139.*",
        "states, SQLite",
        {
            "PREFECT_LOGGING_LEVEL": "ERROR",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        },
    ),
    DagPeer(
        "langgraph",
        "LangGraph 1.2.20",
        "langgraph==1.2.20 langgraph-checkpoint-sqlite==3.1.2",
        "values, SQLite",
    ),
    DagPeer("dask", "Dask 2026.8.0", "dask==2026.8.0 distributed==2026.8.0", "nothing"),
)


@dataclass(frozen=True, slots=True)
class DagFound:
    seconds: float
    cpu_seconds: float


def run_dag(stage: Stage, peer: DagPeer, width: int, depth: int) -> DagFound:
    """Install it if need be, and run the DAG once in a process of its own. Raises `Unavailable`."""
    programs = install(peer.name, peer.requirements)
    directory = stage.new_directory(peer.name)
    command = [str(programs / "python"), str(_HERE / f"{peer.name}_dag.py"), str(width), str(depth)]
    process = start(command, directory, peer.variables)
    try:
        with TreeWatch(process.pid) as watch:
            status = process.wait(_RUN_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"not done after {_RUN_SECONDS:.0f} s") from None
    finally:
        stop(process)
    told = next((line for line in _lines(directory) if line.startswith('{"began"')), None)
    if status != 0 or told is None:
        raise Unavailable(f"ended with {status}: {last_line(directory)}")
    found = json.loads(told)
    if found["values"] != list(range(width)):
        raise Unavailable(f"gave {found['values']} and not what went in")
    return DagFound(found["ended"] - found["began"], watch.cpu_between(found["began"], found["ended"]))


def _lines(directory: Path) -> list[str]:
    return (directory / "log").read_text(errors="replace").splitlines()
