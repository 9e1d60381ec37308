"""The tables of engines: Claude Agent SDK, Codex CLI, described agents, and plain model endpoints."""

from __future__ import annotations

import re
from string import Formatter
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from ratchet.config.section import Count, Real, Seconds, Section, Variable, Whole, Words
from ratchet.kernel import is_name

PLACEHOLDERS = ("prompt", "prompt_file", "system", "system_file", "schema_file", "model", "workspace", "home")
FAILURES = (
    "missing",
    "no_access",
    "refused",
    "rate_limited",
    "timeout",
    "budget",
    "crashed",
    "bad_output",
)
# Whether more has to be said about where the answer is.
_ANSWERS = {"stdout": False, "last_line": False, "none": False, "json": True, "jsonl": True, "file": True}


class CommandSettings(Section):
    argv: Words = Field(
        min_length=1,
        description="the command line, without a shell; {prompt}, {prompt_file}, {system}, {system_file}, "
        "{schema_file}, {model}, {workspace} and {home} are filled in, and a word with nothing to fill in is left out; "
        "a prompt that has no place in it comes on stdin",
        examples=[["my-agent", "--model={model}"]],
    )
    model: str | None = Field(None, min_length=1, description="the model", examples=["qwen3-coder"])
    environment: Words = Field(
        (), description="names of the variables that it may see, such as that of its key"
    )
    variables: Words = Field(
        (), description="NAME=value for variables of its own; filled in like argv", examples=[["CI=1"]]
    )
    network: bool = Field(True, description="whether it may use the network")
    edits_files: bool = Field(
        True, description="whether it changes files; if not, its workspace is read-only"
    )
    answer: str = Field(
        "stdout",
        description="where its last message is: stdout, last_line, json:PATH in all of its output as JSON, "
        "jsonl:PATH in the last line of JSON that has it, file:NAME, or none",
    )
    error_at: str | None = Field(
        None,
        min_length=1,
        description="path in its JSON; anything there is an error",
        examples=["error.message"],
    )
    error_pattern: str | None = Field(
        None,
        min_length=1,
        description="regular expression for output that is an error, whatever the exit code",
        examples=["^Error: "],
    )
    input_tokens_at: str | None = Field(
        None,
        min_length=1,
        description="path of the tokens in; * is any name, and + adds a further path",
        examples=["usage.input_tokens"],
    )
    cached_tokens_at: str | None = Field(
        None, min_length=1, description="path of those that were cached", examples=["usage.cached_tokens"]
    )
    output_tokens_at: str | None = Field(
        None, min_length=1, description="path of the tokens out", examples=["usage.output_tokens"]
    )
    cost_usd_at: str | None = Field(
        None, min_length=1, description="path of the cost in dollars", examples=["total_cost_usd"]
    )
    usage_pattern: str | None = Field(
        None,
        min_length=1,
        description="regular expression for usage in plain output, with groups named input, cached, output and cost",
        examples=["(?P<input>[0-9]+) in, (?P<output>[0-9]+) out"],
    )
    usage_counts: Literal["last", "sum"] = Field(
        "last", description="whether the last usage reported is that of the session, or the sum of all"
    )
    exit_codes: Words = Field(
        (), description="what exit codes mean, as code=failure", examples=[["75=rate_limited"]]
    )
    patterns: Words = Field(
        (),
        description="what the output of a failed session means, as failure=regular expression; a group named seconds "
        "tells how long to wait",
        examples=[["rate_limited=(?i)too many requests"]],
    )
    nothing_done: str | None = Field(
        None,
        min_length=1,
        description="regular expression for the output of a failed session that surely did nothing, so that it may be "
        "tried again",
        examples=["(?i)connection refused"],
    )
    version: Words = Field(
        (), description="arguments with which it prints its version", examples=[["--version"]]
    )
    install: str | None = Field(
        None, min_length=1, description="how to install it", examples=["npm install -g my-agent"]
    )

    @field_validator("argv", "variables", "answer")
    @classmethod
    def _filled_in(cls, value: tuple[str, ...] | str) -> tuple[str, ...] | str:
        for word in (value,) if isinstance(value, str) else value:
            for name in placeholders_in(word):
                if name not in PLACEHOLDERS:
                    known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
                    raise ValueError(
                        f"has the placeholder {{{name}}}; there are {known}, and {{{{ for a brace"
                    )
        return value

    @field_validator("answer")
    @classmethod
    def _place(cls, answer: str) -> str:
        kind, colon, where = answer.partition(":")
        if kind not in _ANSWERS or bool(where) != _ANSWERS[kind] or bool(colon) != _ANSWERS[kind]:
            raise ValueError(
                f"must be stdout, last_line, json:PATH, jsonl:PATH, file:NAME or none, not {answer!r}"
            )
        return answer

    @field_validator("variables")
    @classmethod
    def _assignments(cls, variables: tuple[str, ...]) -> tuple[str, ...]:
        for each in variables:
            if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", each):
                raise ValueError(f"must be NAME=value, not {each!r}")
        return variables

    @field_validator("usage_pattern", "error_pattern", "nothing_done")
    @classmethod
    def _expression(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            _compiled(pattern)
        return pattern

    @field_validator("exit_codes")
    @classmethod
    def _codes(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        for each in codes:
            code, _, failure = each.partition("=")
            if not code.isdecimal() or failure not in FAILURES:
                raise ValueError(f"must be code=failure with one of {', '.join(FAILURES)}, not {each!r}")
        return codes

    @field_validator("patterns")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for each in patterns:
            failure, _, pattern = each.partition("=")
            if not pattern or failure not in FAILURES:
                raise ValueError(
                    f"must be failure=regular expression with one of {', '.join(FAILURES)}, not {each!r}"
                )
            _compiled(pattern)
        return patterns

    @property
    def reports_usage(self) -> bool:
        return bool(self.usage_pattern or self.input_tokens_at or self.output_tokens_at)

    @property
    def reports_cost(self) -> bool:
        return bool(self.cost_usd_at) or "(?P<cost>" in (self.usage_pattern or "")


def placeholders_in(word: str) -> list[str]:
    """The names in braces. Raises `ValueError` when the braces do not match."""
    try:
        parts = list(Formatter().parse(word))
    except ValueError as error:
        raise ValueError(f"{word!r} has braces that do not match: {error}") from None
    return [name for _, name, _, _ in parts if name is not None]


def _compiled(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None


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
    key_variable: Variable = Field(
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
    key_variable: Variable = Field(
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


def _address(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    if "@" in url:
        raise ValueError("must not contain a password; name the variable that holds it in key_variable")
    return url.rstrip("/")


class EndpointSettings(Section):
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
    key_variable: Variable | None = Field(
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
    endpoints: dict[str, EndpointSettings] = Field(
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
