"""The tables of plain model endpoints: where they are, what they cost, and who uses which."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from ratchet.config.section import Count, Real, Seconds, Section, Whole, Words
from ratchet.kernel import is_name


def _address(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    if "@" in url:
        raise ValueError("must not carry a password; name the variable that holds it in key_variable")
    return url.rstrip("/")


class Endpoint(Section):
    kind: Literal["openai", "anthropic", "ollama"] = Field(
        "openai",
        description="what it speaks: openai (chat completions), anthropic (messages) or ollama; a provider that is "
        "known keeps its own",
    )
    base_url: Annotated[str, AfterValidator(_address)] | None = Field(
        None,
        description="its address; unset is the maker's own, or the local Ollama",
        examples=["http://127.0.0.1:8000/v1"],
    )
    key_variable: str | None = Field(
        None,
        min_length=1,
        description="the environment variable that holds its key; a provider that is known keeps its own, and other "
        "addresses need none",
        examples=["OPENAI_API_KEY"],
    )
    structured: Literal["auto", "native", "tool", "prompt"] = Field(
        "auto",
        description="how a schema is asked for: native (the protocol's own way), tool, prompt, or what fits the model",
    )
    concurrency: Count = Field(8, description="calls that this process has open at once")
    requests_per_minute: Count | None = Field(
        None, description="calls that this process begins in a minute", examples=[60]
    )
    tokens_per_minute: Count | None = Field(
        None,
        description="tokens used in the last minute after which this process begins no call",
        examples=[100_000],
    )


Price = Annotated[Real, Field(ge=0)]


class Prices(Section):
    """What a million tokens cost, in US dollars."""

    input: Price = Field(description="dollars for a million tokens in", examples=[1.25])
    cached: Price | None = Field(
        None,
        description="dollars for a million tokens in that were cached; unset is as input",
        examples=[0.125],
    )
    output: Price = Field(description="dollars for a million tokens out", examples=[10.0])


class Llm(Section):
    default: str | None = Field(
        None,
        min_length=1,
        description="what is used when none is named: a model, an endpoint/model, an address#model, a role or a "
        "role.tier; unset is the usual model of the only key in the environment",
        examples=["gpt-5.5"],
    )
    tries: Count = Field(3, description="calls of one model before the next one is tried")
    retry_base_seconds: Seconds = Field(
        0.5, description="pause before the second call; doubles with each one"
    )
    patience_seconds: Seconds = Field(
        60.0, description="the longest pause that an endpoint may ask for before the next model is tried"
    )
    call_seconds: Seconds = Field(300.0, description="wall time of one call")
    repairs: Annotated[Whole, Field(ge=0)] = Field(
        2, description="how often an answer that is not as asked is sent back"
    )
    turns: Count = Field(
        50, description="answers of the model in one session, those with tool calls included"
    )
    output_tokens: Count | None = Field(
        None, description="the most tokens of one answer; unset leaves it to the endpoint", examples=[8192]
    )
    resume_days: Annotated[Count, Field(le=36_500)] = Field(
        7, description="how long a conversation can be resumed"
    )
    endpoints: dict[str, Endpoint] = Field(
        default_factory=dict,
        description="one endpoint; openai, anthropic, openrouter and ollama are there without being named",
        json_schema_extra={"example": "local"},
    )
    roles: dict[str, dict[str, Words]] = Field(
        default_factory=dict,
        description="the model of each role and tier; further ones are fallbacks, in order",
        examples=["local/qwen3-coder"],
        json_schema_extra={"example": "code.fast"},
    )
    prices: dict[str, Prices] = Field(
        default_factory=dict,
        description="what a model costs; its name may be endpoint/model",
        json_schema_extra={"example": "qwen3-coder"},
    )

    @field_validator("endpoints", "roles")
    @classmethod
    def _named(cls, tables: dict[str, object]) -> dict[str, object]:
        for name, table in tables.items():
            for each in (name, *(table if isinstance(table, dict) else ())):
                # A dot parts a role from its tier.
                if not is_name(each) or "." in each:
                    raise ValueError(f"the name {each!r} must be lower-case letters, digits, '_' and '-'")
        return tables

    @field_validator("roles")
    @classmethod
    def _models(cls, roles: dict[str, dict[str, tuple[str, ...]]]) -> dict[str, dict[str, tuple[str, ...]]]:
        for role, tiers in roles.items():
            for tier, models in tiers.items():
                if not models:
                    raise ValueError(f"{role}.{tier} must name models, such as gpt-5.5 or local/qwen3-coder")
        return roles
