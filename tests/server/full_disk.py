"""A server on a disk of its own: `tests.ledger.disks.on_disk` runs these in another process."""

from __future__ import annotations

import os
from pathlib import Path

from ratchet.runtime import Worker, open_ledger, open_runtime
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.server.conftest import client_of


def readiness(disk: Path) -> list[list[object]]:
    """Whether the server is ready, and why not: with room, on a full disk, and with room again."""
    loaded = load(disk, f"sqlite:///{disk}/ledger.db")
    with open_ledger(loaded) as ledger:
        worker = Worker(open_runtime(loaded, ledger, make_kinds()))
        worker.start()
        client = client_of(worker.runtime, loaded, worker)

        def ask() -> list[object]:
            answer = client.get("/health/ready")
            return [answer.status_code, answer.json()["reasons"]]

        room = os.statvfs(disk)
        before = ask()
        (disk / "ballast").write_bytes(bytes((room.f_bavail * room.f_frsize) - 4 * 1024 * 1024))
        full = ask()
        (disk / "ballast").unlink()
        after = ask()
        worker.stop(0)
    return [before, full, after]
