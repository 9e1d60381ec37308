"""A server on a home in which the demo has run: every flow has something to show."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

RATCHET = (sys.executable, "-m", "ratchet.cli")


@contextlib.contextmanager
def demonstrated(home: Path) -> Iterator[tuple[str, str]]:
    """Run the demo in `home`, then serve it: the address and the token."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RATCHET_")}
    environment |= {"RATCHET_HOME": str(home), "RATCHET_AGENTS__PORT": "0"}
    home.mkdir(parents=True, exist_ok=True)
    subprocess.run([*RATCHET, "demo"], env=environment, cwd=home, check=True, stdout=subprocess.DEVNULL)
    server = subprocess.Popen(
        [*RATCHET, "serve", "--port", "0", "--json"],
        env=environment,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        yield told["url"], Path(told["token_file"]).read_text().strip()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        server.stdout.close()
