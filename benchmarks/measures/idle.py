"""What a server costs while nothing happens."""

from __future__ import annotations

import importlib.util
import socket
import time

from benchmarks.measures.start import ratchet_command
from benchmarks.result import Goal, Result
from benchmarks.sample import cpu_of_children, cpu_seconds
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Child, Stage, place_of
from ratchet.config import Loaded

_GOAL_PERCENT = 5.0
_SETTLE_SECONDS = 4.0


def measure(stage: Stage, scale: Scale) -> Result:
    serving = importlib.util.find_spec("ratchet.cli.commands.serve") is not None
    start = _serve if serving else _work
    children = {database: start(stage, database) for database in DATABASES}
    time.sleep(_SETTLE_SECONDS)
    before = {database: _cpu_seconds(child.pid) for database, child in children.items()}
    backends = cpu_of_children(stage.postgres.pid)
    began = time.monotonic()
    time.sleep(scale.idle_seconds)
    seconds = time.monotonic() - began
    used = {database: _cpu_seconds(child.pid) - before[database] for database, child in children.items()}
    backends = cpu_of_children(stage.postgres.pid) - backends
    what = "ratchet serve" if serving else "a process with an idle worker"
    result = Result(
        "idle",
        f"{what}, {seconds:.0f} s in which nothing happens",
        ["", "% of a core"],
        numbers={"seconds": used},
    )
    for database, child in children.items():
        if not child.alive:
            raise RuntimeError(f"{what} on {database} ended by itself")
        percent = used[database] / seconds * 100
        result.rows.append([f"{what}, {SHOWN[database]}", f"{percent:.1f}"])
        goal = f"{SHOWN[database]}: under {_GOAL_PERCENT:.0f} % of a core"
        result.goals.append(Goal(goal, f"{percent:.1f} %", percent < _GOAL_PERCENT))
    result.rows.append(["the PostgreSQL server meanwhile", f"{backends / seconds * 100:.1f}"])
    return result


def _cpu_seconds(pid: int) -> float:
    """That of a server: of its supervisor and of the processes under it."""
    return cpu_seconds(pid) + cpu_of_children(pid)


def _serve(stage: Stage, database: str) -> Child:
    return serve(stage, stage.new_home(database))[0]


def serve(stage: Stage, home: Loaded, variables: dict[str, str] | None = None) -> tuple[Child, int]:
    """A server on a home, once it listens, and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = place_of(home)
    environment = {
        "RATCHET_HOME": place["home"],
        "RATCHET_DATABASE_URL": place["database_url"],
        "RATCHET_SERVER__PORT": str(port),
        # Several servers run at once, and each serves agents at an address of its own.
        "RATCHET_AGENTS__PORT": "0",
        "RATCHET_LOG__LEVEL": "error",
        **(variables or {}),
    }
    child = stage.start([*ratchet_command(), "serve"], environment, quiet=True)
    _wait_for_port(port, child)
    return child, port


def _work(stage: Stage, database: str) -> Child:
    return stage.start_side(
        "worker", "ratchet", place_of(stage.new_home(database)), stage.directory / "unused"
    )


def _wait_for_port(port: int, child: Child, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline or not child.alive:
                raise
            time.sleep(0.05)
