"""Which model an agent program is to ask, where, and with which key or login: from the names that people type."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.engines.endpoint import SettingNames, base_url_setting
from ratchet.engines.providers import AGENTS, PROVIDERS, Provider, maker_of, only_provider, spelled
from ratchet.kernel import Misuse, RatchetError

if TYPE_CHECKING:
    from ratchet.config.engine_settings import Claude, Codex
    from ratchet.engines.registry import EngineContext


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
