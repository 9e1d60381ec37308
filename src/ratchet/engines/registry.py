"""Which engines there are, how to open one by its name, and whether it is ready."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.providers import default_engine, maker_of
from ratchet.kernel import Misuse, RatchetError

if TYPE_CHECKING:
    from ratchet.config import Settings


GROUP = "ratchet.engines"


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What an engine is opened with: the settings, Ratchet's home, and the environment to take keys from."""

    settings: Settings
    home: Path
    environment: Mapping[str, str]


Opener = Callable[[EngineContext, str], Engine]
"""Opens an engine. The text is what followed its name: `llm:code.fast` opens `llm` with `code.fast`."""

# By name, so that listing them imports none of them.
_BUILT_IN = {
    "codex": "ratchet.engines.codex:open_codex",
    "claude": "ratchet.engines.claude:open_claude",
    "llm": "ratchet.engines.llm:open_llm",
    "search": "ratchet.engines.search:open_search",
    "replay": "ratchet.engines.replay:open_replay",
}
_RECORDING = "replay:"
_COMMAND = "ratchet.engines.command:open_command"


def engine_names(settings: Settings) -> list[str]:
    """Every engine that can be named: built in, described in the settings, or installed by others."""
    return sorted({*_BUILT_IN, *_described(settings), *_installed()})


def open_engine(name: str | None, surroundings: EngineContext) -> Engine:
    """The engine `name`, or `name:option`; the usual one if none is named, see `default_engine`.

    Raises `Misuse` when there is none of that name.
    """
    name = name or default_engine(surroundings.settings, surroundings.environment)
    plain, _, option = name.partition(":")
    if plain in _described(surroundings.settings):
        return _load(_COMMAND)(surroundings, name)
    if plain in _BUILT_IN:
        return _load(_BUILT_IN[plain])(surroundings, option)
    if plain in _installed():
        return _foreign(plain)(surroundings, option)
    names = ", ".join(engine_names(surroundings.settings))
    if (maker := maker_of(name)) is not None and ":" not in name:
        raise Misuse(
            f"{name!r} is a model, and no engine",
            hint=f"write {maker.agent}:{name} for an agent that edits files, or llm:{name} for plain answers",
        )
    raise Misuse(
        f"there is no engine {plain!r}",
        hint=f"use one of {names}, or describe it in ratchet.toml under [engines.command.{plain}]",
    )


def names_recording(value: Any) -> bool:
    """Whether `value` names a recording, which is a file of this machine: only its own user may choose one.

    It is the name of an engine, or a table of any depth, where everything under a key with `engine` in it is one.
    """
    left: list[tuple[Any, bool]] = [(value, isinstance(value, str))]
    while left:
        found, of_engine = left.pop()
        if isinstance(found, str) and of_engine and _RECORDING in found:
            return True
        if isinstance(found, Mapping):
            left += [(each, of_engine or "engine" in str(key).lower()) for key, each in found.items()]
        elif isinstance(found, list | tuple):
            left += [(each, of_engine) for each in found]
    return False


def require_model(name: str | None, model: str | None, surroundings: EngineContext) -> None:
    """Raise `Missing` if the engine asks plain models, and neither `model` nor anything else says which.

    To be called before a run is begun: an engine is opened without a model, since a request may name one.
    """
    plain, _, option = (name or default_engine(surroundings.settings, surroundings.environment)).partition(
        ":"
    )
    if plain == "llm":
        from ratchet.engines.llm.choice import candidates

        candidates(model or option or None, surroundings.settings.llm, surroundings.environment)


def _described(settings: Settings) -> set[str]:
    from ratchet.engines.command.catalog import READY

    return {*READY, *settings.engines.command}


def _installed() -> set[str]:
    return {point.name for point in entry_points(group=GROUP)}


def _foreign(name: str) -> Opener:
    [point, *_] = entry_points(group=GROUP, name=name)
    try:
        opener: Opener = point.load()
    except Exception as error:
        raise RatchetError(
            f"the engine {name!r} of {point.value} cannot be loaded: {type(error).__name__}: {error}",
            hint="fix or uninstall the package that brings it",
        ) from error
    return opener


def _load(address: str) -> Opener:
    module, _, attribute = address.partition(":")
    opener: Opener = getattr(importlib.import_module(module), attribute)
    return opener


_SECONDS = 20.0


class Looked(NamedTuple):
    name: str
    readiness: Readiness


EngineOpener = Callable[[str | None, EngineContext], Engine]


async def look_at(
    names: Iterable[str], surroundings: EngineContext, opener: EngineOpener = open_engine
) -> list[Looked]:
    """What each engine says of itself, asked all at once. One that breaks down or hangs is not ready.

    A caller that needs a working engine asks here: what `ratchet engine check` says is what a flow does.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_look(name, surroundings, opener)) for name in names]
    return [task.result() for task in tasks]


async def _look(name: str, surroundings: EngineContext, opener: EngineOpener) -> Looked:
    try:
        engine = opener(name, surroundings)
        async with asyncio.timeout(_SECONDS):
            return Looked(name, await engine.check())
    except TimeoutError:
        return Looked(
            name,
            Readiness(
                False, f"gave no answer within {_SECONDS:g} s", "run it by hand to see what it waits for"
            ),
        )
    except RatchetError as error:
        return Looked(name, Readiness(False, str(error), error.hint))
    except Exception as error:  # noqa: BLE001 - engines come from anywhere, and one must not hide the others
        return Looked(name, Readiness(False, f"broke down: {type(error).__name__}: {error}"))
