"""Setting Ratchet up: what there is to work with, which of it is used, and what a run costs at most."""

from __future__ import annotations

import asyncio
import importlib
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from ratchet.config import BudgetLimits, Settings
from ratchet.config.engine_settings import Prices
from ratchet.config.redaction import mask_text
from ratchet.config.sources import Key
from ratchet.engines.llm.call import candidate_price
from ratchet.engines.llm.choice import candidates
from ratchet.engines.providers import OLLAMA_HOST, keys_in, no_price, ollama_url, price_of
from ratchet.engines.registry import EngineContext, agent_model, claude_login, codex_login, open_engine
from ratchet.extras import find_extra, install_command
from ratchet.kernel import Missing, Misuse, RatchetError, dollars, with_hint
from ratchet.programs import run_in_terminal
from ratchet.protocols.engine_choice import Reviewer, require_reviewer

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
        # Its progress is for the person who waits; stdout is for what was asked for.
        done = run_in_terminal(command, output=sys.stderr)
    except OSError as error:
        raise Missing(
            f"{agent} cannot be installed: {error}", hint=f"install uv or pip, then: {line}"
        ) from error
    if done:
        packages = shlex.join(find_extra(agent).packages)
        raise Missing(
            f"{agent} could not be installed: `{line}` ended with {done}",
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


def silent_ollama(environment: Mapping[str, str], found: Iterable[Means]) -> str | None:
    """What to say of an Ollama that the environment names and that was not found."""
    if not environment.get(OLLAMA_HOST, "").strip() or any(
        (each.model or "").startswith("ollama/") for each in found
    ):
        return None
    address = mask_text(ollama_url(environment))
    return f"{OLLAMA_HOST} is set, but no Ollama with a model answers at {address}"


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
        _ = urlsplit(address).port
        answer = await http.get(f"{address}/models")
        return [str(each["id"]) for each in answer.json()["data"]] if answer.status_code == 200 else []
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError, RecursionError):
        return []


FIRST_RUN_USD = 5.0
"""What one run may cost unless set otherwise."""
FIRST_RUN_TOKENS = 2_000_000


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """`settings` are what would be written, and no key that is set already; model and price are those in force then."""

    means: Means
    engine: str
    model: str | None
    price: Prices | None
    settings: Mapping[Key, Any]


# A session is stopped between two calls of its model, so the calls that have begun are paid in full.
_IN_FLIGHT = "what is in flight then is still paid"


def costs_at_most(plan: SetupPlan, settings: Settings) -> str:
    """What one run may cost with these settings, in words."""
    if plan.means.kind == "login":
        return "nothing beyond the subscription"
    if plan.price is not None and not plan.price.input and not plan.price.output:
        return "nothing: the model runs on this machine"
    limits = settings.budgets.run
    if limits.cost_usd is not None and plan.price is None:
        return f"nothing runs: {no_price(plan.model or 'its model', limits.cost_usd)}"
    if limits.cost_usd is not None:
        return f"stops when {dollars(limits.cost_usd)} are used (budgets.run.cost_usd); {_IN_FLIGHT}"
    if limits.tokens is not None:
        return f"stops when {limits.tokens:,} tokens are used (budgets.run.tokens); {_IN_FLIGHT}"
    return "not bounded: set budgets.run.cost_usd"


def plan_for(
    means: Means, others: Sequence[Means], around: EngineContext, is_set: Callable[[str], bool]
) -> SetupPlan:
    """What to set so that every flow works with `means`; `others` may answer where it cannot.

    A run is bounded in money, or in tokens where the price is unknown, unless its budget is set already.
    """
    engine, named = _in_force(means, around.settings, is_set)
    chosen = agent_model(named, means.agent, getattr(around.settings.engines, means.agent), around)
    price = price_of(
        chosen.model,
        around.settings.llm.prices,
        url=chosen.base_url,
        keyless=not chosen.key_variable,
    )
    settings: dict[Key, Any] = {("engines", "default"): means.agent}
    if means.model is not None:
        settings["engines", means.agent, "model"] = means.model
    plain = next((each.model for each in (means, *others) if each.is_plain and each.model), None)
    if plain is not None:
        settings["llm", "default"] = plain
    else:
        # Nobody answers plain questions, so the agent does.
        for key in (("workflows", "overseer"), ("workflows", "llm"), ("agents", "llm")):
            settings[key] = means.agent
    if means.kind == "key" and around.settings.budgets.run == BudgetLimits():
        name, most = ("tokens", FIRST_RUN_TOKENS) if price is None else ("cost_usd", FIRST_RUN_USD)
        settings["budgets", "run", name] = most
    unset = {key: value for key, value in settings.items() if not is_set(".".join(key))}
    return SetupPlan(means, engine, chosen.model, price, unset)


def _in_force(means: Means, settings: Settings, is_set: Callable[[str], bool]) -> tuple[str, str | None]:
    """The engine that will work, and the model that is named to it: what is set already stays. Raises `Misuse`."""
    engine = settings.engines.default if is_set("engines.default") else means.agent
    plain, _, option = engine.partition(":")
    if plain != means.agent:
        raise Misuse(
            f"engines.default is {engine!r}, which works with something else",
            hint=f"set engines.default to {means.agent}, or see what {plain} needs with `ratchet engine check {plain}`",
        )
    return engine, option or (None if is_set(f"engines.{plain}.model") else means.model)


def plain_model(settings: Settings, agent: str, environment: Mapping[str, str]) -> str:
    """Who answers plain questions with these settings, and what is wrong with that, in words."""
    name = settings.llm.default
    if name is None:
        return agent
    try:
        unpriced = (
            candidate_price(candidates(name, settings.llm, environment)[0], settings.llm.prices) is None
        )
    except RatchetError as error:
        return f"{name}, which cannot be asked: {with_hint(error)}"
    return f"{name} (its price is not known)" if unpriced else name


def reviewer_in(around: EngineContext) -> Reviewer:
    """Who would review with these settings. Raises `Blocked`. Not for an event loop."""
    return require_reviewer(around, None, None, open_engine)
