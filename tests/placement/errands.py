"""What nodes are asked to do in tests."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse
from ratchet.placement import NodeContext, NodeUnfit
from tests.waiting import eventually_async


def noted(name: str) -> list[int]:
    """Add the number of this process to a file, and say all that are there."""
    with Path(name).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return list(map(int, Path(name).read_text().split()))


async def echo(given: Any, _node: NodeContext) -> Any:
    return given


async def process(_given: Any, _node: NodeContext) -> int:
    return os.getpid()


async def read(sha256: str, node: NodeContext) -> bytes:
    return node.read(sha256)


async def count(most: int, node: NodeContext) -> str:
    for number in range(most):
        node.say(str(number).encode())
    return "counted"


async def refuse(_given: Any, _node: NodeContext) -> None:
    raise Misuse("it is not possible", hint="try another way")


async def unfit_on(name: str, node: NodeContext) -> int:
    """Fit everywhere but in the process that was the first to write its number to the file `name`."""
    if noted(name)[0] == os.getpid():
        raise NodeUnfit(f"{node.name} is not the right one")
    return os.getpid()


async def unfit(_given: Any, _node: NodeContext) -> None:
    raise NodeUnfit("it has no such data")


async def die(name: str, _node: NodeContext) -> str:
    """Kill its process, but not when it is tried again. Each try leaves a line."""
    if len(noted(name)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


async def always_die(_given: Any, _node: NodeContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def wait_in(name: str, _node: NodeContext) -> None:
    noted(name)
    await asyncio.sleep(3600)


async def wait_for(name: str, _node: NodeContext) -> str:
    """Wait until there is a file `name`.go."""
    noted(name)
    await eventually_async(lambda: Path(f"{name}.go").exists())
    return "went"


async def sleep(seconds: float, _node: NodeContext) -> None:
    await asyncio.sleep(seconds)
