"""The ways in which foreign code is run: as a node, as a command, and with no sandbox at all."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from typing import Any

from ratchet.doctor.attack import hostile_argv, run_hostile
from ratchet.sandbox import Finished


def attack(way: str, name: str, given: object = None, **options: Any) -> Finished:
    """What became of an attack; `value` is what it got."""
    return asyncio.run(run_hostile(way, name, given, **options))


def unconfined(name: str, given: object = None, **options: Any) -> Any:
    """What the attack gets where there is no sandbox."""
    done = subprocess.run(
        hostile_argv(name, json.dumps(given)), capture_output=True, check=True, timeout=120, **options
    )
    return json.loads(done.stdout)


def soon(condition: Any, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
