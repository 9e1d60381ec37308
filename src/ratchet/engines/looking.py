"""Looking whether engines could be used now: the same for the terminal, for the doctor and for a flow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.registry import Surroundings, open_engine
from ratchet.kernel import RatchetError

_SECONDS = 20.0


class Looked(NamedTuple):
    name: str
    readiness: Readiness


Opener = Callable[[str | None, Surroundings], Engine]


async def look_at(
    names: Iterable[str], surroundings: Surroundings, opener: Opener = open_engine
) -> list[Looked]:
    """What each engine says of itself, asked all at once. One that breaks down or hangs is not ready.

    Whoever needs an engine that works asks here: what `ratchet engine check` says is what a flow does.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_look(name, surroundings, opener)) for name in names]
    return [task.result() for task in tasks]


async def _look(name: str, surroundings: Surroundings, opener: Opener) -> Looked:
    try:
        engine = opener(name, surroundings)
        async with asyncio.timeout(_SECONDS):
            return Looked(name, await engine.check())
    except TimeoutError:
        return Looked(
            name, Readiness(False, f"gave no answer within {_SECONDS:g} s", "see what its program does")
        )
    except RatchetError as error:
        return Looked(name, Readiness(False, str(error), error.hint))
    except Exception as error:  # noqa: BLE001 - engines come from anywhere, and one must not hide the others
        return Looked(name, Readiness(False, f"broke down: {type(error).__name__}: {error}"))
