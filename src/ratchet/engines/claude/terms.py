"""What holds for a session: the settings, the model, and the key or the login that it is paid with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.config.engine_settings import Claude
from ratchet.config.llm_settings import Prices
from ratchet.engines.agent_model import agent_model
from ratchet.engines.claude.conversations import Conversations
from ratchet.engines.endpoint_errors import SettingNames
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.logins import claude_login
from ratchet.engines.providers import read_key
from ratchet.engines.secrets import Secrets

if TYPE_CHECKING:
    from ratchet.engines.registry import Surroundings

TOKEN_VARIABLE = "CLAUDE_CODE_OAUTH_TOKEN"
"""Where Claude Code itself looks for what `claude setup-token` gives."""


@dataclass(frozen=True, slots=True)
class Terms:
    settings: Claude
    model: str | None
    environment: Mapping[str, str]
    """Of the process around, to choose from."""
    home: Path
    """Of Ratchet."""
    key: str
    secrets: Secrets
    kept: Conversations
    prices: Mapping[str, Prices]
    names: SettingNames
    told: str = ""
    """With what it goes to whom."""


def find_terms(named: str | None, around: Surroundings, kept: Conversations) -> Terms:
    """Raises `Fault` when there is no key and no login, and `Misuse` for a model that Claude cannot ask."""
    settings = around.settings.engines.claude
    found = agent_model(named, "claude", settings, around)
    held = settings.model_copy(update={"base_url": found.base_url, "key_variable": found.key_variable})
    key = read_key(around.environment, found.key_variable)
    told = f"with the key in {found.key_variable}" if key else f"without a key at {found.base_url}"
    if not key and found.key_variable and settings.base_url is None:
        key, told = _login(around.environment)
        held = held.model_copy(update={"key_kind": "oauth_token"}) if key else held
    if held.base_url is None and not key:
        raise Fault(
            Failure.MISSING,
            f"{held.key_variable} is not set, Claude is not logged in, and Anthropic answers nobody without a key",
            hint=f"run `ratchet setup`; or put a key into {held.key_variable}, log in with `claude`, or set "
            "engines.claude.base_url to an endpoint that needs none",
        )
    secrets = Secrets((key, json.dumps(key)[1:-1]))
    home = around.home.absolute()
    prices = around.settings.llm.prices
    return Terms(held, found.model, around.environment, home, key, secrets, kept, prices, found.names, told)


def _login(environment: Mapping[str, str]) -> tuple[str, str]:
    """The token of an account and where it is from; nothing without a login. Raises `Fault` for an expired one."""
    if token := read_key(environment, TOKEN_VARIABLE):
        return token, f"with the token in {TOKEN_VARIABLE}"
    login = claude_login(environment)
    if login is None:
        return "", ""
    if login.expired:
        raise Fault(
            Failure.MISSING,
            f"the login of Claude in {login.file} has expired",
            hint=f"start `claude` once, which renews it, or put what `claude setup-token` gives into {TOKEN_VARIABLE}",
        )
    return login.token, f"with the login in {login.file}"
