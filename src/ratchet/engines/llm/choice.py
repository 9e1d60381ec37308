"""Reading which models are meant: a role, a role and a tier, or one model of an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.config.llm_settings import Endpoint, Llm
from ratchet.kernel import Misuse

# There without being configured; a table of the same name in ratchet.toml takes the place of one.
READY: Mapping[str, Endpoint] = {
    "openai": Endpoint(kind="openai"),
    "anthropic": Endpoint(kind="anthropic"),
    "ollama": Endpoint(kind="ollama"),
}
_OWN_URL = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://127.0.0.1:11434/v1",
}
_OWN_KEY = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model of one endpoint."""

    place: str
    endpoint: Endpoint
    model: str

    @property
    def name(self) -> str:
        return f"{self.place}/{self.model}"

    @property
    def url(self) -> str:
        """Its address, as the client of its protocol wants it: with `/v1`, or without."""
        url = self.endpoint.base_url or _OWN_URL[self.endpoint.kind]
        match self.endpoint.kind:
            case "anthropic":
                return url.removesuffix("/v1")
            case "ollama":
                return f"{url.removesuffix('/v1')}/v1"
        # Other services may have their interface anywhere.
        return url

    @property
    def key_variable(self) -> str | None:
        """The variable that must hold a key: the one that is named, or the maker's at the maker's own address."""
        if self.endpoint.key_variable or self.endpoint.base_url:
            return self.endpoint.key_variable
        return _OWN_KEY.get(self.endpoint.kind)

    def key_in(self, environment: Mapping[str, str]) -> str:
        """The key, or nothing."""
        return environment.get(self.key_variable, "").strip() if self.key_variable else ""


def candidates(choice: str | None, settings: Llm) -> tuple[Candidate, ...]:
    """The models that `choice` means, the first one first. Raises `Misuse`, naming what there is instead."""
    wanted = choice or settings.default
    if not wanted:
        raise Misuse(
            "no model is named and llm.default is not set",
            hint="name one (llm:ROLE, llm:ROLE.TIER or llm:ENDPOINT/MODEL), or set llm.default",
        )
    names = (wanted,) if "/" in wanted else _of_role(wanted, settings)
    return tuple(_candidate(name, settings) for name in names)


def _of_role(wanted: str, settings: Llm) -> tuple[str, ...]:
    role, _, tier = wanted.partition(".")
    tiers = settings.roles.get(role)
    if not tiers:
        known = ", ".join(sorted(settings.roles)) or "none"
        raise Misuse(
            f"there is no role {role!r}; there are: {known}", hint=f"set llm.roles.{role} in ratchet.toml"
        )
    if not tier:
        tier = next(iter(tiers)) if len(tiers) == 1 else "default"
    if tier not in tiers:
        raise Misuse(
            f"the role {role!r} has no tier {tier!r}",
            hint=f"name one of {', '.join(sorted(tiers))}: {role}.TIER",
        )
    return tiers[tier]


def _candidate(name: str, settings: Llm) -> Candidate:
    place, _, model = name.partition("/")
    endpoints = {**READY, **settings.endpoints}
    if place not in endpoints:
        raise Misuse(
            f"there is no endpoint {place!r} for the model {name!r}; there are: {', '.join(sorted(endpoints))}",
            hint=f"describe it in ratchet.toml under [llm.endpoints.{place}]",
        )
    if not model:
        raise Misuse(f"{name!r} names no model", hint=f"say {place}/MODEL")
    return Candidate(place, endpoints[place], model)
