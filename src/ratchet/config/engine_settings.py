"""The tables of the engines."""

from __future__ import annotations

from pydantic import Field, field_validator

from ratchet.config.claude_settings import Claude
from ratchet.config.codex_settings import Codex
from ratchet.config.command_settings import Command
from ratchet.config.quantities import Count, Seconds
from ratchet.config.section import Section
from ratchet.kernel import is_name


class Engines(Section):
    default: str = Field(
        "codex",
        min_length=1,
        description="the engine that is used when none is named; unset is claude if the only key in the environment is "
        "Anthropic's, else codex",
    )
    deadline_seconds: Seconds = Field(1800.0, description="wall time after which a session is ended")
    tries: Count = Field(3, description="tries of a session that failed before it did anything")
    codex: Codex = Field(default_factory=Codex, description="the Codex CLI")
    claude: Claude = Field(default_factory=Claude, description="the Claude Agent SDK")
    command: dict[str, Command] = Field(
        default_factory=dict,
        description="any other agent with a command line, under a name of your own",
        json_schema_extra={"example": "mine"},
    )

    @field_validator("command")
    @classmethod
    def _named(cls, command: dict[str, Command]) -> dict[str, Command]:
        for name in command:
            if not is_name(name):
                raise ValueError(
                    f"the engine name {name!r} must be lower-case letters, digits, '.', '_' and '-'"
                )
        return command
