"""Versions for tests of servers: directories with a Runner and a Tuner that need no library."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from ratchet.agents.servers import Launch

TINY = Path(__file__).with_name("tiny.py")
HELLO = """
from tiny import serve

def hello(name):
    return f"hello, {name}"

serve(hello)
"""


def write_version(directory: Path, runner: str = HELLO, tuner: str = HELLO) -> Path:
    directory.mkdir(parents=True)
    (directory / "tiny.py").write_text(TINY.read_text())
    (directory / "runner.py").write_text(runner)
    (directory / "tuner.py").write_text(tuner)
    (directory / "state.json").write_text(json.dumps({}))
    return directory


def launch_of(directory: Path, *, architect_port: int = 8125, **environment: str) -> Launch:
    return Launch("greeter", "c" * 40, directory, architect_port, environment)


def processes_in(directory: Path) -> list[int]:
    """The processes of the whole machine that work in `directory`."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - `glob` minds entries that vanish
        try:
            if Path(os.readlink(f"/proc/{name}/cwd")) == directory:  # noqa: PTH115 - the link need not lead anywhere
                found.append(int(name))
        except OSError:
            continue
    return found


def soon(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
