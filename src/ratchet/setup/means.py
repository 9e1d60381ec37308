"""What there is to pay or ask a model with: keys, logins, local endpoints, and agent programs to install."""

from __future__ import annotations

import asyncio
import importlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ratchet.engines.agent_model import claude_login, codex_login
from ratchet.engines.providers import keys_in, ollama_url
from ratchet.extras import find_extra, install_command
from ratchet.kernel import Missing

if TYPE_CHECKING:
    import httpx2


def missing_programs(agents: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Those of `agents` whose program is not here. Codex may also be on the PATH; Claude needs its SDK."""
    return [
        agent
        for agent in dict.fromkeys(agents)
        if find_extra(agent).absent
        and not (agent == "codex" and shutil.which("codex", path=environment.get("PATH")))
    ]


def install(agent: str) -> str:
    """Install the program of `agent`; the command that did it. Raises `Missing` with what to do instead."""
    command = install_command(agent)
    line = shlex.join(command)
    try:
        # Its progress is for whoever waits; stdout is for what was asked for.
        done = subprocess.run(command, stdout=sys.stderr, check=False)
    except OSError as error:
        raise Missing(
            f"{agent} cannot be installed: {error}", hint=f"install uv or pip, then: {line}"
        ) from error
    if done.returncode:
        packages = shlex.join(find_extra(agent).packages)
        raise Missing(
            f"{agent} could not be installed: `{line}` ended with {done.returncode}",
            hint=f"without a network, bring the packages from a machine that has one (`pip download {packages} -d "
            f"DIR`), then: {line} --no-index --find-links DIR",
        )
    importlib.invalidate_caches()
    return line


# Where LM Studio, vLLM, llama.cpp, LiteLLM and Jan listen unless told otherwise.
_LOCAL_PORTS = (1234, 8000, 8080, 4000, 1337)
_SECONDS = 2.0
_TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"


@dataclass(frozen=True, slots=True)
class Means:
    """One way to have models: who works with it, and the model that is asked unless another is named."""

    kind: Literal["key", "login", "local"]
    agent: str
    source: str
    model: str | None = None
    """By the name that people type; nothing leaves it to the agent program."""

    @property
    def is_plain(self) -> bool:
        """Whether plain models can be asked with it; a login is for its agent program alone."""
        return self.kind != "login"

    def __str__(self) -> str:
        return f"{self.agent} with {self.source}" + (f" ({self.model})" if self.model else "")


async def find_means(environment: Mapping[str, str]) -> list[Means]:
    """Everything that is found, the best first. Looks at files and asks endpoints of this machine; costs nothing."""
    found = [
        Means("key", each.agent, f"the key in {each.key_variable}", _usual(each.name, each.models[0]))
        for each in keys_in(environment)
    ]
    # Of one that sells all models only if there is no maker's own key.
    found.sort(key=lambda each: (each.model or "").startswith("openrouter/"))
    return [*found, *_logins(environment), *await _local(environment)]


def _usual(provider: str, model: str) -> str:
    return model if provider in ("openai", "anthropic") else f"{provider}/{model}"


def _logins(environment: Mapping[str, str]) -> list[Means]:
    found = []
    codex, claude = codex_login(environment), claude_login(environment)
    if codex is not None and not codex.expired:
        found.append(Means("login", "codex", f"the login in {codex.file}"))
    if environment.get(_TOKEN, "").strip():
        found.append(Means("login", "claude", f"the token in {_TOKEN}"))
    elif claude is not None and not claude.expired:
        found.append(Means("login", "claude", f"the login in {claude.file}"))
    return found


async def _local(environment: Mapping[str, str]) -> list[Means]:
    from ratchet.engines.llm.connection import http_client

    ollama = ollama_url(environment).removesuffix("/v1")
    addresses = [f"{ollama}/v1", *(f"http://127.0.0.1:{port}/v1" for port in _LOCAL_PORTS)]
    async with http_client(_SECONDS) as http:
        listed = await asyncio.gather(*(_models(http, address) for address in addresses))
    found = []
    for address, models in zip(addresses, listed, strict=True):
        if models:
            is_ollama = address == addresses[0]
            model = f"ollama/{models[0]}" if is_ollama else f"{address}#{models[0]}"
            found.append(
                Means("local", "codex", f"{'Ollama' if is_ollama else 'the endpoint'} at {address}", model)
            )
    return found


async def _models(http: httpx2.AsyncClient, address: str) -> list[str]:
    """What an endpoint lists; nothing from whatever else may listen there."""
    import httpx2

    try:
        answer = await http.get(f"{address}/models")
        return [str(each["id"]) for each in answer.json()["data"]] if answer.status_code == 200 else []
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError):
        return []
