"""Which models are meant: by a plain name, at an endpoint or an address, or by a role and a tier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ratchet.config.engine_settings import EndpointSettings, Llm
from ratchet.engines.endpoint import SettingNames, base_url_setting
from ratchet.engines.providers import (
    OLLAMA_HOST,
    PROVIDERS,
    maker_of,
    ollama_url,
    only_provider,
    read_key,
    spelled,
)
from ratchet.kernel import Missing, Misuse

_ADDRESSES = ("http://", "https://")
# Whose protocol it is: an endpoint without an address is at its own.
_OWN = {each.protocol: each for each in reversed(list(PROVIDERS.values()))}


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """One model of one endpoint."""

    place: str
    endpoint: EndpointSettings
    model: str
    home: str | None = None
    """Where the endpoint is if its table names no address."""
    address: str | None = None
    """What has set its address; nothing where it is the maker's own."""

    @property
    def names(self) -> SettingNames:
        """Where its key, its model and its address come from."""
        return SettingNames(self.key_variable, f"llm.endpoints.{self.place}", "llm.default", self.address)

    @property
    def name(self) -> str:
        return f"{self.place}{'#' if self.place.startswith(_ADDRESSES) else '/'}{self.model}"

    @property
    def url(self) -> str:
        """Its address, as the client of its protocol wants it: with `/v1`, or without."""
        url = self.endpoint.base_url or self.home or _OWN[self.endpoint.kind].url
        match self.endpoint.kind:
            case "anthropic":
                return url.removesuffix("/v1")
            case "ollama":
                return f"{url.removesuffix('/v1')}/v1"
        # Other services may have their interface anywhere.
        return url

    @property
    def is_at_home(self) -> bool:
        """Whether it is at the address of the maker of its protocol."""
        own = _OWN[self.endpoint.kind].url
        return self.endpoint.base_url is None and self.home in (None, own)

    @property
    def key_variable(self) -> str | None:
        """The variable that may hold a key: the one that is named, or the provider's.

        A provider keeps its key when only its address is another; other endpoints get a key only by name.
        """
        if self.endpoint.key_variable:
            return self.endpoint.key_variable
        if self.place in PROVIDERS:
            return PROVIDERS[self.place].key_variable
        return None if self.endpoint.base_url else _OWN[self.endpoint.kind].key_variable

    @property
    def needs_key(self) -> bool:
        """Whether it needs a key; an address of your own may need none."""
        return bool(
            self.endpoint.key_variable or (self.key_variable is not None and self.endpoint.base_url is None)
        )

    def key_in(self, environment: Mapping[str, str]) -> str:
        """Its key; nothing where there is none. Raises `Fault` for one that cannot be sent."""
        return read_key(environment, self.key_variable) if self.key_variable else ""


def candidates(
    choice: str | None, settings: Llm, environment: Mapping[str, str] | None = None
) -> tuple[ModelCandidate, ...]:
    """The models that `choice` means, the first one first.

    Without a choice they are those of `llm.default`, or the usual one of the only provider that the environment holds
    a key of. Raises `Misuse` for a name that means nothing, saying which is like it and how to write it, and `Missing`
    when there is neither a name nor a default.
    """
    around = environment or {}
    wanted = (choice or "").strip() or default_model(settings, around)
    if wanted is None:
        raise Missing(
            "no model is named, llm.default is not set, and the environment has no key or several",
            hint="run `ratchet setup`, or set llm.default to a model such as gpt-5.5 or ollama/qwen3",
        )
    return tuple(_candidate(name, settings, around) for name in _names(wanted, settings))


def default_model(settings: Llm, environment: Mapping[str, str]) -> str | None:
    """What is asked when no model is named: `llm.default`, or the usual model of the only key there is."""
    if settings.default is not None:
        return settings.default
    only = only_provider(environment)
    return f"{only.name}/{only.models[0]}" if only else None


def endpoint_at(place: str, settings: Llm) -> EndpointSettings | None:
    """The endpoint of that name. What its table leaves out is as the provider of that name has it."""
    described, provider = settings.endpoints.get(place), PROVIDERS.get(place)
    if provider is None:
        return described
    if described is None:
        return EndpointSettings(kind=provider.protocol)
    if "kind" in described.model_fields_set:
        return described
    return described.model_copy(update={"kind": provider.protocol})


def _names(wanted: str, settings: Llm) -> tuple[str, ...]:
    """The models that are meant, each with its place."""
    role = wanted.partition(".")[0]
    models = _of_role(wanted, settings) if role in settings.roles else (wanted,)
    return tuple(_placed(each, settings) for each in models)


def _placed(wanted: str, settings: Llm) -> str:
    if wanted.startswith(_ADDRESSES):
        return wanted
    place, slash, _ = wanted.partition("/")
    if slash and endpoint_at(place, settings) is not None:
        return wanted
    if slash:
        raise _unknown_place(wanted, place, settings)
    maker = maker_of(wanted)
    if maker is None:
        raise _unknown(wanted, settings)
    return f"{maker.name}/{wanted}"


def _of_role(wanted: str, settings: Llm) -> tuple[str, ...]:
    role, _, tier = wanted.partition(".")
    tiers = settings.roles[role]
    if not tier:
        tier = next(iter(tiers)) if len(tiers) == 1 else "default"
    if tier not in tiers:
        raise Misuse(
            f"the role {role!r} has no tier {tier!r}",
            hint=f"name one of {', '.join(sorted(tiers))}: {role}.TIER",
        )
    return tiers[tier]


def _candidate(name: str, settings: Llm, environment: Mapping[str, str]) -> ModelCandidate:
    if name.startswith(_ADDRESSES):
        return _at_address(name)
    place, _, model = name.partition("/")
    endpoint = endpoint_at(place, settings)
    if endpoint is None:
        raise _unknown_place(name, place, settings)
    if not model:
        raise Misuse(f"{name!r} names no model", hint=f"write {place}/MODEL")
    known = PROVIDERS.get(place)
    home = ollama_url(environment) if endpoint.kind == "ollama" else known.url if known else None
    address = OLLAMA_HOST if endpoint.kind == "ollama" else None
    if endpoint.base_url is not None:
        address = base_url_setting(("llm", "endpoints", place), environment)
    else:
        model = spelled(model, place)
    return ModelCandidate(place, endpoint, model, home, address)


def _at_address(name: str) -> ModelCandidate:
    address, mark, model = name.partition("#")
    if not model:
        raise Misuse(f"{name!r} names no model", hint=f"write {address}{mark or '#'}MODEL")
    if "@" in address:
        raise Misuse(
            "the address of a model must not contain a password",
            hint="describe it in ratchet.toml under [llm.endpoints.NAME], with key_variable",
        )
    return ModelCandidate(
        address.rstrip("/"),
        EndpointSettings(kind="openai", base_url=address),
        model,
        address=f"the address of {name}",
    )


def _unknown_place(name: str, place: str, settings: Llm) -> Misuse:
    near = _nearest(place, [*PROVIDERS, *settings.endpoints])
    return Misuse(
        f"there is no endpoint {place!r} for the model {name!r}; the nearest is {near!r}",
        hint=f"write openrouter/{name} for a model of OpenRouter, or describe the endpoint in ratchet.toml under "
        f"[llm.endpoints.{place}]",
    )


def _unknown(name: str, settings: Llm) -> Misuse:
    usual = [model for each in PROVIDERS.values() for model in each.models if "/" not in model]
    near = _nearest(name, [*settings.roles, *usual])
    return Misuse(
        f"{name!r} is neither a role nor a model whose provider is known; the nearest is {near!r}",
        hint=f"write where it is: openai/{name}, anthropic/{name}, openrouter/MAKER/{name}, ollama/{name} or "
        f"http://HOST/v1#{name}",
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    # Only an error needs it, and it is slow to import.
    from difflib import get_close_matches

    return get_close_matches(name, list(dict.fromkeys(known)), n=1, cutoff=0.0)[0]
