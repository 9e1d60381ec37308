"""The table of an agent that is described rather than programmed."""

from __future__ import annotations

import re
from string import Formatter
from typing import Literal

from pydantic import Field, field_validator

from ratchet.config.section import Section, Words

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


class Command(Section):
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
        "last", description="whether the last usage told is that of the session, or the sum of all"
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
