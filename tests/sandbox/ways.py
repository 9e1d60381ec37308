"""The ways in which foreign code is run: as a node, as a command, and with no sandbox at all."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ratchet.sandbox import Bounds, Finished, Node, Policy, run

ATTACKS = Path(__file__).with_name("attacks.py")
_CALL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import attacks
print(json.dumps(getattr(attacks, sys.argv[2])(json.loads(sys.argv[3]))))
"""


def attack(way: str, name: str, given: object = None, **options: Any) -> Finished:
    """What became of an attack; `value` is what it got."""
    return asyncio.run(attacking(way, name, given, **options))


async def attacking(
    way: str,
    name: str,
    given: object = None,
    *,
    bounds: Bounds | None = None,
    policy: Policy | None = None,
    **more: Any,
) -> Finished:
    bounds, policy = bounds or Bounds(wall_seconds=20), policy or Policy()
    text = json.dumps(given)
    if way == "node":
        node = Node(ATTACKS, name, **more)
        return await run(node, stdin=text.encode(), bounds=bounds, policy=policy)
    seen = Policy(
        **{field: getattr(policy, field) for field in policy.__dataclass_fields__}
        | {"readable": (*policy.readable, ATTACKS.parent)}
    )
    return await run(python_call(name, text), cwd=Path("/tmp"), bounds=bounds, policy=seen)


def python_call(name: str, text: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _CALL, str(ATTACKS.parent), name, text]


def unconfined(name: str, given: object = None, **options: Any) -> Any:
    """What the attack gets where there is no sandbox."""
    done = subprocess.run(
        python_call(name, json.dumps(given)), capture_output=True, check=True, timeout=120, **options
    )
    return json.loads(done.stdout)


def processes_with(mark: str) -> list[int]:
    """Processes of the whole machine that have `mark` in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - `glob` minds entries that vanish
        try:
            if mark.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def soon(condition: Any, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
