"""Which engines there are, how to open one by its name, and whether it is ready."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.engines.endpoint import SettingNames, base_url_setting
from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.providers import (
    AGENTS,
    PROVIDERS,
    Provider,
    default_engine,
    maker_of,
    only_provider,
    spelled,
)
from ratchet.kernel import Misuse, RatchetError, did_you_mean

if TYPE_CHECKING:
    from ratchet.config import Settings
    from ratchet.config.engine_settings import Claude, Codex


_ADDRESSES = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class AgentModel:
    """No model leaves it to the program, no address to its maker; an empty `key_variable` means that none is sent."""

    model: str | None
    base_url: str | None
    key_variable: str
    names: SettingNames


def agent_model(named: str | None, agent: str, settings: Codex | Claude, around: EngineContext) -> AgentModel:
    """What `named`, or else the settings, mean for the program `agent`. Raises `Misuse` for a model it cannot ask.

    With an address in the table of the agent, a name is passed on as it is: the endpoint there knows it.
    """
    own = _own(agent)
    name = (named or settings.model or "").strip() or None
    table = f"engines.{agent}"

    def names_for(key: str, address: str | None) -> SettingNames:
        return SettingNames(key, table, f"{table}.model", address)

    if name is not None and name.startswith(_ADDRESSES):
        address, _, model = name.partition("#")
        if not model:
            raise Misuse(f"{name!r} names no model", hint=f"write {address}#MODEL")
        return AgentModel(model, address.rstrip("/"), "", names_for("", f"the address of {name}"))
    key = settings.key_variable
    if settings.base_url is not None:
        own_setting = base_url_setting(("engines", agent), around.environment)
        return AgentModel(name, settings.base_url, key, names_for(key, own_setting))
    if name is None:
        name = _usual(own, settings, around)
    place, slash, model = (name or "").partition("/")
    if name is not None and place != own.name and (slash or maker_of(name) not in (own, None)):
        return _elsewhere(name, agent, own, around)
    at = _moved(own, around)
    setting = at and base_url_setting(("llm", "endpoints", own.name), around.environment)
    asked = model if slash else name
    if asked is not None and at is None:
        asked = spelled(asked, own.name)
    return AgentModel(asked, at, key, names_for(key, setting))


def configured_model(engine: str, named: str | None, around: EngineContext) -> str | None:
    """The model that an engine would ask, in the words of its provider; nothing if only the engine knows."""
    plain, _, option = engine.partition(":")
    name = named or option or None
    try:
        if plain in AGENTS:
            return agent_model(name, plain, getattr(around.settings.engines, plain), around).model
        if plain == "llm":
            from ratchet.engines.llm.choice import candidates

            return candidates(name, around.settings.llm, around.environment)[0].model
    except RatchetError:
        # What is wrong with it is said where it is opened or asked.
        return None
    return named


def other_model(engine: str, model: str | None, around: EngineContext) -> str | None:
    """A usual model, other than `model`, of the provider that an agent speaks to; nothing if none is known."""
    plain, _, option = engine.partition(":")
    if plain not in AGENTS:
        return None
    provider = _provider_of(plain, option or None, around)
    usual = (f"{provider.name}/{each}" for each in provider.models if each != model) if provider else iter(())
    return next(usual, None)


def _provider_of(agent: str, named: str | None, around: EngineContext) -> Provider | None:
    """Whose models an agent asks; nothing for an endpoint of one's own."""
    settings = getattr(around.settings.engines, agent)
    name = named or settings.model
    if settings.base_url is not None or (name or "").startswith(_ADDRESSES):
        return None
    if name is None:
        only = only_provider(around.environment)
        return only if only is not None and only.agent == agent else _own(agent)
    place, slash, _ = name.partition("/")
    return PROVIDERS.get(place) if slash else maker_of(name) or _own(agent)


def _own(agent: str) -> Provider:
    return next(each for each in PROVIDERS.values() if each.agent == agent)


def _usual(own: Provider, settings: Codex | Claude, around: EngineContext) -> str | None:
    """The usual model of the provider whose key there is; without one the program chooses, which knows its account."""
    only = only_provider(around.environment)
    if only is not None and only.agent == own.agent:
        return f"{only.name}/{only.models[0]}"
    return own.models[0] if around.environment.get(settings.key_variable) else None


def _moved(own: Provider, around: EngineContext) -> str | None:
    """Where the settings of plain models say that the maker is."""
    described = around.settings.llm.endpoints.get(own.name)
    if described is None or described.base_url is None:
        return None
    return described.base_url.removesuffix("/v1") if own.protocol == "anthropic" else described.base_url


def _elsewhere(name: str, agent: str, own: Provider, around: EngineContext) -> AgentModel:
    from ratchet.engines.llm.choice import candidates

    [found, *_] = candidates(name, around.settings.llm, around.environment)
    if (found.endpoint.kind == "anthropic") != (own.protocol == "anthropic"):
        maker = maker_of(found.model)
        other = maker.agent if maker and maker.agent != agent else "llm"
        raise Misuse(
            f"{agent} cannot ask {name!r}: {found.place} speaks another protocol",
            hint=f"use the engine {other}:{name}",
        )
    names = replace(found.names, model=f"engines.{agent}.model")
    return AgentModel(found.model, found.url, found.key_variable or "", names)


# A token that ends in the middle of a session's first answer is of no use.
_SPARE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Login:
    """`until` is when its token ends, in seconds since 1970; nothing if it does not say."""

    token: str = field(repr=False)
    file: Path
    account: str | None = None
    until: float | None = None
    is_key: bool = False
    """Whether it is a key of the API, which the program was given once."""

    @property
    def expired(self) -> bool:
        return self.until is not None and self.until < time.time() + _SPARE_SECONDS


def codex_login(environment: Mapping[str, str]) -> Login | None:
    """The login of the Codex CLI, if there is one that can be read."""
    file = _place(environment, "CODEX_HOME", ".codex", "auth.json")
    found = _read(file)
    if file is None or found is None:
        return None
    tokens = found.get("tokens")
    if isinstance(tokens, dict) and isinstance(token := tokens.get("access_token"), str) and token:
        account = tokens.get("account_id")
        return Login(token, file, account if isinstance(account, str) else None, _end_of(token))
    key = found.get("OPENAI_API_KEY")
    return Login(key, file, is_key=True) if isinstance(key, str) and key else None


def claude_login(environment: Mapping[str, str]) -> Login | None:
    """The login of Claude Code, if there is one that can be read."""
    file = _place(environment, "CLAUDE_CONFIG_DIR", ".claude", ".credentials.json")
    found = (_read(file) or {}).get("claudeAiOauth")
    if file is None or not isinstance(found, dict):
        return None
    token, until = found.get("accessToken"), found.get("expiresAt")
    if not isinstance(token, str) or not token:
        return None
    return Login(token, file, until=until / 1000 if isinstance(until, int | float) else None)


def _place(environment: Mapping[str, str], variable: str, folder: str, name: str) -> Path | None:
    if own := environment.get(variable):
        return Path(own, name)
    home = environment.get("HOME")
    return Path(home, folder, name) if home else None


def _read(file: Path | None) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_bytes()) if file else None
    except (OSError, ValueError):
        # As good as none: the program will write it again at the next login.
        return None
    return found if isinstance(found, dict) else None


def _end_of(token: str) -> float | None:
    """When a JSON Web Token ends, by its own word."""
    try:
        _, claims, _ = token.split(".")
        end = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    except (ValueError, KeyError, TypeError):
        return None
    return float(end) if isinstance(end, int | float) else None


GROUP = "ratchet.engines"


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What an engine is opened with: the settings, Ratchet's home, and the environment to take keys from."""

    settings: Settings
    home: Path
    environment: Mapping[str, str]

    @property
    def readable(self) -> tuple[Path, ...]:
        """What agent programs may read beside the system, their tools and their workspace, as far as it is there."""
        named = (Path(each).expanduser() for each in self.settings.engines.readable)
        return tuple(path for path in named if path.exists())


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
    near = did_you_mean(plain, engine_names(surroundings.settings))
    raise Misuse(
        f"there is no engine {plain!r}",
        hint=f"{near} There are {names}"
        if near
        else f"use one of {names}, or describe it in ratchet.toml under [engines.command.{plain}]",
    )


def names_recording(value: Any) -> bool:
    """Whether `value` names a recording, which is a file of this machine: only its own user may choose one.

    It is the name of an engine or a model, or a table of any depth, where everything under a key with `engine` or
    `model` in it is one.
    """
    return any(_RECORDING in name for name in _names_in(value))


def names_address(value: Any) -> bool:
    """Whether `value`, as above, names an address or a file in the place of an engine or a model."""
    return any(
        _looks_like_place(part) for name in _names_in(value) for part in (name, name.partition(":")[2])
    )


def _looks_like_place(text: str) -> bool:
    return "://" in text or text.lstrip().startswith(("/", ".", "~"))


def _names_in(value: Any) -> Iterator[str]:
    left: list[tuple[Any, bool]] = [(value, isinstance(value, str))]
    while left:
        found, is_name = left.pop()
        if isinstance(found, str) and is_name:
            yield found
        elif isinstance(found, Mapping):
            left += [(each, is_name or _is_about_engines(str(key))) for key, each in found.items()]
        elif isinstance(found, list | tuple):
            left += [(each, is_name) for each in found]


def _is_about_engines(key: str) -> bool:
    return any(word in key.lower() for word in ("engine", "model"))


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
