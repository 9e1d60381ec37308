"""Live, well, ready: three different questions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.processes import process_identity
from ratchet.ledger.tables import processes
from ratchet.runtime import Runtime
from ratchet.runtime.processes import register
from ratchet.server.app import create_app
from tests.ledger.disks import SMALL, on_disk
from tests.server.full_disk import readiness
from tests.server.test_metrics import value


@pytest.mark.soak
def test_a_server_with_a_worker_is_ready(working_api: TestClient) -> None:
    assert working_api.get("/health").json() == {"status": "ok", "version": "0.1.0", "reasons": []}
    assert working_api.get("/health/ready").json() == {"status": "ready", "reasons": []}


def test_a_server_without_a_worker_lives_and_is_not_ready(api: TestClient) -> None:
    assert api.get("/health/live").json() == {"status": "ok"}
    degraded = api.get("/health")
    assert (degraded.status_code, degraded.json()["status"]) == (200, "degraded")
    answer = api.get("/health/ready")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert answer.json() == {"status": "not ready", "reasons": ["no worker takes jobs"]}


@pytest.mark.soak
def test_a_server_that_is_stopping_is_not_ready_and_opens_no_streams(working_api: TestClient) -> None:
    assert isinstance(working_api.app, FastAPI)
    working_api.app.state.service.stop()
    assert working_api.get("/health/ready").json()["reasons"] == ["the server is shutting down"]
    assert working_api.get("/events/stream").status_code == 503
    assert working_api.get("/runs").status_code == 200


@pytest.mark.soak
def test_a_server_on_a_full_disk_is_not_ready_until_there_is_room(tmp_path: Path) -> None:
    ready = [200, []]
    assert on_disk(SMALL, tmp_path, readiness, size="96m") == [ready, [503, ["the disk is full"]], ready]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_server_is_not_ready_while_a_process_beside_it_has_no_descriptors_left(
    working_api: TestClient, ledger: Ledger
) -> None:
    program = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40));"
        " [os.dup(0) for _ in range(36)]; print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as hoarder:
        assert hoarder.stdout is not None
        hoarder.stdout.readline()
        with ledger.write() as tx:
            register(tx, "hoarder", "worker", 1)
            pid = {"pid": hoarder.pid, "identity": process_identity(hoarder.pid)}
            tx.connection.execute(sa.update(processes).where(processes.c.id == "hoarder").values(pid))
        reasons = working_api.get("/health/ready").json()["reasons"]
        text = working_api.get("/metrics").text
        hoarder.communicate()
    assert reasons == ["the open files of a process are used up"]
    found = {"role": "worker", "pid": str(hoarder.pid)}
    assert (
        value(text, "ratchet_open_descriptors", **found),
        value(text, "ratchet_descriptor_limit", **found),
    ) == (
        39,
        40,
    )
    assert value(text, "ratchet_inotify_instances", pid=str(os.getpid())) >= 1
    for name in (
        "disk_free_bytes",
        "memory_available_bytes",
        "inotify_watches_limit",
        "resident_memory_bytes",
    ):
        assert value(text, f"ratchet_{name}") > 0


def test_a_server_whose_ledger_takes_no_writes_is_not_ready(
    runtime: Runtime, loaded: Loaded, ledger: Ledger
) -> None:
    with ledger.write() as tx:
        register(tx, "silent", "server", 1)
    client = TestClient(create_app(runtime, loaded, "token", process_id="silent"))
    assert client.get("/health/ready").status_code == 200
    with ledger.write() as tx:
        tx.connection.execute(sa.update(processes).values(beat_at=processes.c.beat_at - 60_000))
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["the ledger cannot be written"])
