"""Forks workers: a new one takes milliseconds instead of the second that imports cost.

It reads one JSON object per line ({"home", "url", "flags"}) and answers with the pid of a worker once that takes jobs.
The workers are ordinary processes of their own; nothing is shared but the memory of the imported modules.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from pathlib import Path

# Imported here once, for every worker: Ratchet loads them when it first needs them.
import psycopg  # noqa: F401
import structlog  # noqa: F401

import ratchet.observe.metrics
import ratchet.runtime.worker  # noqa: F401
from ratchet.config.keys import Keys
from ratchet.observe import logs
from tests.runtime.worker_process import work

_PR_SET_PDEATHSIG = 1
Keys.model_rebuild()


def main() -> None:
    # Dead children go at once, as they would if a system's init were their parent.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        listen, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(listen)
            be_worker(order, tell)
        os.close(tell)
        with os.fdopen(listen) as answer:
            print(pid if answer.read() else "failed", flush=True)


def be_worker(order: dict[str, object], tell: int) -> None:
    code = 1
    try:
        # A worker ends with the nursery, and the nursery with the tests, whatever kills those.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(Path(str(order["home"])) / "worker.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        logs.configure("info")

        def ready(process_id: str) -> None:
            os.write(tell, process_id.encode())
            os.close(tell)

        work(Path(str(order["home"])), str(order["url"]), dict(order["flags"]), ready)  # type: ignore[call-overload]
        code = 0
    except BaseException:  # noqa: BLE001 - told in the log; a fork must never return to the code above it
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
