"""A server with the tests' kinds of jobs: python -m tests.server.server_process HOME DATABASE_URL [key=value …].

`port` alone is what `--port` gives.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ratchet.kernel import RatchetError
from ratchet.observe import logs
from ratchet.server.supervisor import Serving, serve
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load


def tell(serving: Serving) -> None:
    print(serving.url, flush=True)


def main() -> int:
    home, url, *pairs = sys.argv[1:]
    logs.configure("info")
    free = {"server.port": 0, "agents.port": 0}
    given = {**free, **dict(pair.split("=", 1) for pair in pairs)}
    port = given.pop("port", None)
    loaded = load(Path(home), url, **given)
    try:
        return serve(loaded, port=None if port is None else int(port), ready=tell, kinds=make_kinds())
    except RatchetError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
