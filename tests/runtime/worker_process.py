"""A worker of the tests' kinds: python -m tests.runtime.worker_process HOME DATABASE_URL [key=value …]."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ratchet.config import Loaded, load_settings
from ratchet.observe import logs
from ratchet.runtime import Worker, open_ledger, open_runtime
from tests.runtime.kinds import make_kinds


def load(home: Path, url: str, **flags: object) -> Loaded:
    """Settings that suit tests: quick to notice a death, quick to try again."""
    quick = {
        "runtime.heartbeat_seconds": 0.3,
        "runtime.dead_after_seconds": 1.5,
        "runtime.retry_base_seconds": 0.1,
        "runtime.poll_seconds": 0.05,
        "runtime.slots": 4,
    }
    return load_settings({"home": str(home), "database_url": url, **quick, **flags}, env={})


def work(home: Path, url: str, flags: dict[str, object], ready: Callable[[str], None]) -> None:
    """Be a worker until told to stop."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    loaded = load(home, url, **flags)
    with open_ledger(loaded) as ledger:
        worker = Worker(open_runtime(loaded, ledger, make_kinds()))
        worker.start()
        ready(worker.process_id)
        stop.wait()
        worker.stop()


def main() -> None:
    home, url, *pairs = sys.argv[1:]
    logs.configure("info")
    flags: dict[str, object] = dict(pair.split("=", 1) for pair in pairs)
    work(Path(home), url, flags, lambda process_id: print("ready", process_id, flush=True))


if __name__ == "__main__":
    main()
