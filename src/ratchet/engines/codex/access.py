"""How Codex gets to its model: the address, the key or the login of an account, and the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ratchet.config.engine_settings import Codex
from ratchet.engines.agent_model import AgentModel, agent_model
from ratchet.engines.endpoint_errors import SettingNames
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.logins import Login, codex_login
from ratchet.engines.providers import read_key
from ratchet.engines.secrets import Secrets

if TYPE_CHECKING:
    from ratchet.engines.registry import Surroundings

# How the token of a login travels: by a variable that Codex reads and its commands do not see, as a key does.
_LOGIN_VARIABLE = "RATCHET_CODEX_LOGIN"
_ACCOUNT_HEADER = "chatgpt-account-id"


@dataclass(frozen=True, slots=True)
class CodexAccess:
    """`settings` are those of the table with the address and the variable that hold for this model."""

    settings: Codex
    model: str | None
    environment: Mapping[str, str] = field(repr=False)
    secrets: Secrets = field(repr=False)
    names: SettingNames
    headers: Mapping[str, str] = field(default_factory=dict)
    told: str = ""
    """With what it goes to whom."""
    by_login: bool = False

    def or_model(self, usual: str | None) -> CodexAccess:
        """With the program's usual model where none is named: its price is known before it is used. The login of an
        account may have other models, so that is left to the program."""
        return self if self.model or self.by_login else replace(self, model=usual)


def find_access(named: str | None, settings: Codex, around: Surroundings) -> CodexAccess:
    """Raises `Fault` when there is no key and no login, and `Misuse` for a model that Codex cannot ask."""
    found = agent_model(named, "codex", settings, around)
    held = settings.model_copy(update={"base_url": found.base_url, "key_variable": found.key_variable})
    key = read_key(around.environment, found.key_variable)
    login = None if key or found.base_url is not None else codex_login(around.environment)
    if login is not None:
        return _logged_in(login, held, found, around.environment)
    if found.base_url is None and not key:
        variable = found.key_variable
        raise Fault(
            Failure.MISSING,
            f"{variable} is not set, Codex is not logged in, and OpenAI answers nobody without a key",
            hint=f"run `ratchet setup`; or put a key into {variable}, run `codex login`, or set "
            "engines.codex.base_url to an endpoint that needs none",
        )
    told = f"with the key in {found.key_variable}" if key else f"without a key at {found.base_url}"
    environment = {**around.environment, found.key_variable: key} if key else around.environment
    return CodexAccess(held, found.model, environment, _hiding(key), found.names, told=told)


def _logged_in(
    login: Login, settings: Codex, found: AgentModel, environment: Mapping[str, str]
) -> CodexAccess:
    if login.expired:
        raise Fault(
            Failure.MISSING,
            f"the login of Codex in {login.file} has expired",
            hint="run `codex login`, or start `codex` once, which renews it",
        )
    url = settings.base_url if login.is_key else settings.login_url
    return CodexAccess(
        settings.model_copy(update={"base_url": url, "key_variable": _LOGIN_VARIABLE}),
        found.model,
        {**environment, _LOGIN_VARIABLE: login.token},
        _hiding(login.token),
        found.names,
        {_ACCOUNT_HEADER: login.account} if login.account else {},
        f"with the login in {login.file}",
        by_login=True,
    )


def _hiding(key: str) -> Secrets:
    return Secrets((key, json.dumps(key)[1:-1]))
