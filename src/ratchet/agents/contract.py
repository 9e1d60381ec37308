"""What an agent's directory holds: the contract between the Architect, the engine that writes it, and its servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

RUNNER = "runner.py"
TUNER = "tuner.py"
SCHEMA = "state_schema.json"
METADATA = "metadata.json"
README = "README.md"
TESTS = "tests.py"
"""Optional, run by pytest."""
CANARY = "canary.json"
"""Optional: calls that the new servers must answer before a version is promoted."""
MIGRATE = "migrate.py"
"""Optional: `migrate(state)` returns the state as the new schema wants it."""
REQUIRED = (RUNNER, TUNER, SCHEMA, METADATA, README)
FIRST_VERSION = "0.0.0"

STATE = "state.json"
LOGS = "logs"
CUT = "state.cut.json"
"""The state of the version before, as it was when this one took it over."""
# Besides these, nothing that a running agent writes belongs to its code.
UNTRACKED = (
    STATE,
    # The next state, for the moment before it takes the place of the present one.
    "state.json.new",
    "state.lock",
    "state.history.jsonl",
    CUT,
    LOGS,
    ".git",
    "__pycache__",
    ".pytest_cache",
)
IGNORED = "".join(f"{name}\n" for name in UNTRACKED if name != ".git")
"""The content of an agent's .gitignore."""


class Role(StrEnum):
    """The two servers of a version."""

    RUNNER = "runner"
    TUNER = "tuner"

    @property
    def file(self) -> str:
        return {Role.RUNNER: RUNNER, Role.TUNER: TUNER}[self]


@dataclass(frozen=True, slots=True)
class ToolShape:
    """A tool as a caller sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
