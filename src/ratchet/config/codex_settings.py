"""The table of the Codex CLI."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ratchet.config.quantities import Count, Seconds, Whole
from ratchet.config.section import Section, Words


class Codex(Section):
    path: str | None = Field(
        None,
        min_length=1,
        description="the program; unset takes that of the extra `codex`, then the one on the PATH",
        examples=["/opt/codex/bin/codex"],
    )
    model: str | None = Field(None, min_length=1, description="the model", examples=["gpt-5.5"])
    effort: Literal["minimal", "low", "medium", "high", "xhigh"] | None = Field(
        None, description="how much the model reasons; unset leaves it to the model", examples=["medium"]
    )
    base_url: str | None = Field(
        None,
        min_length=1,
        description="an endpoint that speaks the OpenAI Responses protocol; unset is OpenAI's own",
        examples=["http://127.0.0.1:11434/v1"],
    )
    key_variable: str = Field(
        "OPENAI_API_KEY", min_length=1, description="the environment variable that holds the key"
    )
    login_url: str = Field(
        "https://chatgpt.com/backend-api/codex",
        min_length=1,
        description="where a login of the Codex CLI with an account is answered; it is used when there is no key",
    )
    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = Field(
        "workspace-write", description="what the commands of a session may do, in Codex's words"
    )
    network: bool = Field(False, description="whether the commands of a session may use the network")
    environment: Words = Field(
        (), description="names of further variables that commands of a session may see; never that of the key"
    )
    retries: Annotated[Whole, Field(ge=0)] = Field(
        2, description="how often a request to the model is repeated when the endpoint fails"
    )
    idle_seconds: Seconds = Field(
        300.0, description="silence of the endpoint after which a request has failed"
    )
    resume_days: Count = Field(7, description="how long a session can be resumed")

    @model_validator(mode="after")
    def _key_is_hidden(self) -> Self:
        if self.key_variable in self.environment:
            raise ValueError(f"environment must not name {self.key_variable}, which holds the key")
        return self
