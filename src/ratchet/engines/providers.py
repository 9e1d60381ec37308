"""The providers of models that are known without being described: addresses, keys and usual models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ratchet.config import Settings

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
    from ratchet.engines.failure import Failure
    from ratchet.engines.fault import Fault

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
