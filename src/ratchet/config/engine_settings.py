"""The tables of the Claude Agent SDK and of the Codex CLI."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ratchet.config.section import Count, Seconds, Section, Whole, Words


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


class Claude(Section):
    path: str | None = Field(
        None,
        min_length=1,
        description="the program; unset takes the one inside the SDK",
        examples=["/opt/claude/bin/claude"],
    )
    model: str | None = Field(None, min_length=1, description="the model", examples=["claude-sonnet-5"])
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="how much the model reasons; unset leaves it to the model", examples=["medium"]
    )
    base_url: str | None = Field(
        None,
        min_length=1,
        description="an endpoint that speaks the Anthropic Messages protocol; unset is Anthropic's own",
        examples=["http://127.0.0.1:8080"],
    )
    key_variable: str = Field(
        "ANTHROPIC_API_KEY", min_length=1, description="the environment variable that holds the key"
    )
    key_kind: Literal["api_key", "oauth_token"] = Field(
        "api_key",
        description="what that key is; `claude setup-token` makes an oauth_token for a subscription",
    )
    tools: Words = Field(
        ("Read", "Edit", "Write", "Bash", "Glob", "Grep"), description="the built-in tools a session may use"
    )
    environment: Words = Field(
        (), description="names of further variables that a session may see; never that of the key"
    )
    max_turns: Count = Field(200, description="answers of the model after which a session is ended")
    retries: Annotated[Whole, Field(ge=0)] = Field(
        2, description="how often a request to the model is repeated when the endpoint fails"
    )
    idle_seconds: Seconds = Field(
        300.0, description="silence of the endpoint after which a session has failed"
    )
    resume_days: Count = Field(7, description="how long a session can be resumed")

    @field_validator("tools")
    @classmethod
    def _plain_names(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        for tool in tools:
            if not tool.isalpha() or not tool.isascii():
                raise ValueError(f"{tool!r} is not the name of a tool, such as Read or Bash")
        return tools

    @model_validator(mode="after")
    def _key_is_hidden(self) -> Self:
        if self.key_variable in self.environment:
            raise ValueError(f"environment must not name {self.key_variable}, which holds the key")
        return self
