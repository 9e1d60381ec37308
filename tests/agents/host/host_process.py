"""A host in a process of its own: python -m tests.agents.host.host_process HOME DATABASE_URL."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ratchet.agents.host import hosting
from ratchet.runtime import open_ledger, open_runtime
from tests.agents.host.homes import QUICK
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load


async def main() -> None:
    loaded = load(Path(sys.argv[1]), sys.argv[2], **QUICK)
    with open_ledger(loaded) as ledger:
        async with hosting(open_runtime(loaded, ledger, make_kinds()), loaded) as host:
            print(host.url, flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
