"""The providers of models that are known without being described: addresses, keys, usual models, and prices."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any, Literal

from ratchet.kernel import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

    from ratchet.config import Settings
    from ratchet.config.engine_settings import Prices


def price_of(
    model: str | None,
    table: Mapping[str, Prices],
    *,
    place: str | None = None,
    url: str | None = None,
    keyless: bool = False,
    request_tokens: int = 0,
) -> Prices | None:
    """The price of `model` at the endpoint `place`, whose address is `url`. `None` is unknown, not nothing.

    The settings win, `place/model` before `model`. The public list is asked for the provider at `url`, or, where that
    is unknown to it, for the maker of the model. A model that is asked without a key (`keyless`) costs nothing, as on
    a machine of your own, unless its maker sells it: then what answers is a proxy. Some models cost more in a request
    of many `request_tokens`.
    """
    if not model:
        return None
    own = (table.get(f"{place}/{model}") if place else None) or table.get(model)
    if own is not None:
        return own
    if keyless and not _is_sold(model):
        return _free()
    listed = _listed(model, url)
    return None if listed is None else _prices(listed, request_tokens)


def no_price(model: str, dollars: float) -> str:
    """Why a budget of money is refused."""
    return f"the price of {model} is not known, so a budget of {dollars:g} dollars cannot be kept"


def how_to_price(model: str) -> str:
    """What makes a budget of money possible, or does without one."""
    return (
        f'add [llm.prices."{model}"] with input = … and output = … to ratchet.toml, in dollars for a million tokens '
        "(0 if it costs nothing), or give a budget of tokens instead"
    )


def priced(usage: Usage, price: Prices | None) -> Usage:
    """`usage` with what it costs, or with its tokens marked as those of an unknown price."""
    if price is None:
        return replace(usage, unpriced_tokens=usage.tokens)
    return replace(usage, cost_microusd=cost_microusd(usage, price))


def cost_microusd(usage: Usage, price: Prices) -> int:
    """In whole millionths of a dollar, rounded up: dollars for a million tokens are millionths for one."""
    cached = price.input if price.cached is None else price.cached
    exact = (
        _exact(price.input) * (usage.input_tokens - usage.cached_tokens)
        + _exact(cached) * usage.cached_tokens
        + _exact(price.output) * usage.output_tokens
    )
    return int(exact.to_integral_value(rounding=ROUND_CEILING))


def output_tokens_for(microusd: float, price: Prices) -> int | None:
    """The most tokens out that this money buys; `None` when they are free."""
    return int(Decimal(str(microusd)) / _exact(price.output)) if price.output else None


def _exact(dollars: float) -> Decimal:
    # By its shortest spelling: 0.15 is meant, not the binary fraction nearest to it.
    return Decimal(str(dollars))


def _is_sold(model: str) -> bool:
    maker = maker_of(model.rpartition("/")[2])
    return maker is not None and maker.key_variable is not None


def _free() -> Prices:
    from ratchet.config.engine_settings import Prices

    return Prices(input=0, output=0)


@functools.cache
def _listed(model: str, url: str | None) -> ModelPrice | None:
    # Slow to import, and most commands cost nothing.
    from genai_prices import Usage as NoUsage
    from genai_prices import calc_price

    # Agents of several providers name a model with its provider in front.
    names = (model, model.partition("/")[2]) if "/" in model else (model,)
    for name, address in itertools.product(names, (url, None) if url else (None,)):
        with contextlib.suppress(LookupError):
            return calc_price(NoUsage(), name, provider_api_url=address).model_price
    return None


def _prices(listed: ModelPrice, request_tokens: int) -> Prices | None:
    tokens_in, cached, tokens_out = (
        getattr(listed, name, None) for name in ("input_mtok", "cache_read_mtok", "output_mtok")
    )
    if tokens_in is None or tokens_out is None:
        return None
    # With pydantic, which commands that price nothing can do without.
    from ratchet.config.engine_settings import Prices

    return Prices(
        input=_at(tokens_in, request_tokens),
        cached=None if cached is None else _at(cached, request_tokens),
        output=_at(tokens_out, request_tokens),
    )


def _at(price: Any, request_tokens: int) -> float:
    """One price for a million tokens, of a request of this size."""
    dearest = price.base if hasattr(price, "base") else price
    for tier in getattr(price, "tiers", ()):
        dearest = tier.price if request_tokens > tier.start else dearest
    return float(dearest)


Protocol = Literal["openai", "anthropic", "ollama"]


@dataclass(frozen=True, slots=True)
class Provider:
    """`models` are its usual ones, the first for work, the next to review what the first has made."""

    name: str
    protocol: Protocol
    url: str
    key_variable: str | None
    agent: str
    """The agent program that speaks to it."""
    models: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    """How the names of its models begin."""


PROVIDERS: Mapping[str, Provider] = {
    each.name: each
    for each in (
        Provider(
            "openai",
            "openai",
            "https://api.openai.com/v1",
            "OPENAI_API_KEY",
            "codex",
            ("gpt-5.5", "gpt-5.4-mini"),
            ("gpt-", "o1", "o3", "o4", "chatgpt-", "codex-"),
        ),
        Provider(
            "anthropic",
            "anthropic",
            "https://api.anthropic.com",
            "ANTHROPIC_API_KEY",
            "claude",
            ("claude-sonnet-5", "claude-haiku-4-5"),
            ("claude",),
        ),
        Provider(
            "openrouter",
            "openai",
            "https://openrouter.ai/api/v1",
            "OPENROUTER_API_KEY",
            "codex",
            ("openai/gpt-5.5", "anthropic/claude-sonnet-5"),
        ),
        Provider(
            "ollama",
            "ollama",
            "http://127.0.0.1:11434",
            None,
            "codex",
            # Which ones it has is its own affair; these are the families that people name without saying where.
            starts=("gpt-oss", "llama", "qwen", "gemma", "mistral", "deepseek", "phi"),
        ),
    )
}
AGENTS = tuple(dict.fromkeys(each.agent for each in PROVIDERS.values()))
"""The agent programs that edit files and are known without being described."""
OLLAMA_HOST = "OLLAMA_HOST"
_OLLAMA_PORT = 11434


def read_key(environment: Mapping[str, str], variable: str) -> str:
    """The key in a variable, without blanks and line breaks around it; nothing where there is none.

    Raises `Fault` for one that cannot be sent in a header. It names the variable and never the key.
    """
    key = environment.get(variable, "").strip()
    if key.isascii() and key.isprintable():
        return key
    # Here, since most who look for keys never need it.
    from ratchet.engines.engine import Failure, Fault

    what = (
        "a character that is not ASCII" if not key.isascii() else "a line break or another control character"
    )
    raise Fault(
        Failure.MISSING,
        f"the key in {variable} has {what} in it, so it cannot be sent",
        hint=f"set {variable} again, exactly as its provider shows the key",
    )


def keys_in(environment: Mapping[str, str]) -> tuple[Provider, ...]:
    """The providers whose key the environment holds."""
    return tuple(
        each
        for each in PROVIDERS.values()
        if each.key_variable and environment.get(each.key_variable, "").strip()
    )


def only_provider(environment: Mapping[str, str]) -> Provider | None:
    """The one provider that the environment holds a key of; nothing if it holds none, or several."""
    found = keys_in(environment)
    return found[0] if len(found) == 1 else None


def maker_of(model: str) -> Provider | None:
    """Whose model a plain name is, as far as its first letters tell; a tag such as `qwen3:8b` is Ollama's spelling."""
    if ":" in model:
        return PROVIDERS["ollama"]
    small = model.lower()
    found = [
        (len(start), each) for each in PROVIDERS.values() for start in each.starts if small.startswith(start)
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def spelled(model: str, provider: str) -> str:
    """A model as the provider that sells it writes it: `GPT-5.5` is `gpt-5.5`. Other names stay as they are."""
    maker = maker_of(model)
    is_sold = maker is not None and maker.name == provider and maker.key_variable is not None
    return model.lower() if is_sold else model


def default_engine(settings: Settings, environment: Mapping[str, str]) -> str:
    """The engine that works when none is named: the configured one, else that of the only key there is."""
    engines = settings.engines
    if "default" in engines.model_fields_set:
        return engines.default
    only = only_provider(environment)
    return engines.default if only is None else only.agent


def unused_addresses(settings: Settings, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """What other programs take an address from and Ratchet does not, each with what to set instead."""
    found = []
    for name in ("openai", "anthropic"):
        variable, endpoint = f"{name.upper()}_BASE_URL", settings.llm.endpoints.get(name)
        wanted, own = environment.get(variable, "").strip().rstrip("/"), PROVIDERS[name].url
        if not wanted or wanted == own or (endpoint is not None and endpoint.base_url is not None):
            continue
        what = f"{variable} is set and is not used: the models of {name} are asked at {own}"
        fix = f"if another address is meant, set llm.endpoints.{name}.base_url to it in ratchet.toml"
        found.append((what, fix))
    return found


def ollama_url(environment: Mapping[str, str]) -> str:
    """Where Ollama is, by its own variable: `host`, `host:port`, an address, or what it listens on."""
    text = environment.get(OLLAMA_HOST, "").strip().rstrip("/")
    if not text:
        return PROVIDERS["ollama"].url
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        scheme, rest = "http", text
    host, path = rest.partition("/")[::2]
    if host.startswith(":"):
        host = f"127.0.0.1{host}"
    if ":" not in host.rpartition("]")[2]:
        host += f":{_OLLAMA_PORT}" if not slashes else {"http": ":80", "https": ":443"}.get(scheme, "")
    host = host.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
    return f"{scheme}://{host}" + (f"/{path}" if path else "")
