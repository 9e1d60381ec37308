"""`serve` keeps two processes running: one that answers, one that works."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import httpx
import pytest

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.processes import is_running, process_identity
from ratchet.runtime import list_processes
from tests.runtime.kinds import marks
from tests.server.conftest import Server
from tests.server.test_serving import enqueue
from tests.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def pid_of(ledger: Ledger, role: str) -> int:
    with ledger.read() as tx:
        return next((each.pid for each in list_processes(tx) if each.role == role), 0)


def kill(pid: int) -> None:
    """End a process at once, and wait until it is gone."""
    identity = process_identity(pid) or ""
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: is_running(pid, identity) is False)


def test_whichever_process_is_killed_comes_back_and_the_other_one_is_not_disturbed(
    server: Server, loaded: Loaded, ledger: Ledger, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    enqueue(loaded, ledger, file, 600)
    eventually(lambda: len(marks(file)) == 1)
    first = {role: pid_of(ledger, role) for role in ("server", "worker")}

    kill(first["server"])
    # No caller is refused meanwhile: who connects waits until there is a process that answers.
    assert httpx.get(f"{server.url}/health/live", timeout=PATIENCE_SECONDS).status_code == 200
    eventually(lambda: pid_of(ledger, "server") not in (0, first["server"]))
    assert (len(marks(file)), pid_of(ledger, "worker")) == (1, first["worker"])
    assert "the HTTP server was killed by SIGKILL and starts again" in server.words

    kill(first["worker"])
    assert httpx.get(f"{server.url}/health/live", timeout=PATIENCE_SECONDS).status_code == 200
    # The job is done again, by the next worker.
    eventually(lambda: len(marks(file)) == 2)
    assert marks(file)[0] != marks(file)[1]
    eventually(lambda: httpx.get(f"{server.url}/health/ready", timeout=PATIENCE_SECONDS).status_code == 200)
    assert "the worker was killed by SIGKILL and starts again" in server.words

    last = {pid: process_identity(pid) or "" for pid in (pid_of(ledger, role) for role in first)}
    kill(server.process.pid)
    for pid, identity in last.items():
        eventually(lambda pid=pid, identity=identity: is_running(pid, identity) is False)


@pytest.mark.soak
def test_a_supervisor_without_descriptors_starts_the_worker_when_it_has_some_again(
    server: Server, ledger: Ledger
) -> None:
    """What has killed a process of a machine may also keep the next one from being started."""
    limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
    killed = pid_of(ledger, "worker")
    kill(killed)
    eventually(lambda: "the worker cannot be started again: Too many open files" in server.words)
    assert httpx.get(f"{server.url}/health/live", timeout=PATIENCE_SECONDS).status_code == 200
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
    eventually(lambda: pid_of(ledger, "worker") not in (0, killed))
    eventually(lambda: httpx.get(f"{server.url}/health/ready", timeout=PATIENCE_SECONDS).status_code == 200)
