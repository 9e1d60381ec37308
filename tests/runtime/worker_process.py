"""A worker of the tests' kinds: python -m tests.runtime.worker_process HOME DATABASE_URL [key=value …]."""

from __future__ import annotations

import signal
import sys
import threading
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


def main() -> None:
    home, url, *pairs = sys.argv[1:]
    logs.configure("info")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    loaded = load(Path(home), url, **dict(pair.split("=", 1) for pair in pairs))
    with open_ledger(loaded) as ledger:
        worker = Worker(open_runtime(loaded, ledger, make_kinds()))
        worker.start()
        print("ready", worker.process_id, flush=True)
        stop.wait()
        worker.stop()


if __name__ == "__main__":
    main()
