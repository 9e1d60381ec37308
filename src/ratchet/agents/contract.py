"""Where an agent lives and what its directory holds: the contract of the Architect, the engine and the servers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ratchet.files import try_lock
from ratchet.kernel import Conflict, Misuse, is_name

_LONGEST = 64
_LOOK_SECONDS = 0.05
# The last ones are files beside the agents: the host's.
_RESERVED = ("architect", "host.json", "host.json.new", "host.lock")


@dataclass(frozen=True, slots=True)
class AgentDirectory:
    """`repo.git` is the agent's repository, and every version lies checked out in a directory named by its commit.

    `ROOT` is the first version while it is made, `COMMIT-staging` a change of a version while it is made, what did not
    pass lies in `quarantine`, and the state in `states`. There is nothing else.
    """

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def repository(self) -> Path:
        return self.root / "repo.git"

    @property
    def new(self) -> Path:
        return self.root / "ROOT"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    @property
    def states(self) -> Path:
        return self.root / "states"

    def version(self, commit: str) -> Path:
        return self.root / commit

    def staging(self, commit: str | None) -> Path:
        """Where a change of that version is made; `ROOT` for the first one."""
        return self.new if commit is None else self.root / f"{commit}-staging"

    @contextlib.contextmanager
    def held(self, *, patience_seconds: float = 0.0) -> Iterator[None]:
        """The right to change what lies here, which one process has at a time. Raises `Conflict` if another has it and
        does not give it back in time.

        A process that dies gives it back.
        """
        deadline = time.monotonic() + patience_seconds
        self.root.mkdir(parents=True, exist_ok=True)
        lock = self.root / ".lock"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not (locked := try_lock(descriptor)) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
            if not locked or not _lies_at(descriptor, lock):
                raise Conflict(
                    f"another Architect works on the agent {self.name}", hint="wait until it has ended"
                )
            yield
        finally:
            os.close(descriptor)


def _lies_at(descriptor: int, lock: Path) -> bool:
    """A deletion moves the agent's directory away, and the lock with it."""
    return lock.exists() and os.path.samestat(os.fstat(descriptor), lock.stat())


def agents_directory(home: Path) -> Path:
    return home / "agents"


def place_of(home: Path, name: str) -> AgentDirectory:
    """The place of the agent `name`. Raises `Misuse` for a name that no agent can have."""
    check_name(name)
    return AgentDirectory((agents_directory(home) / name).absolute())


def check_name(name: str) -> None:
    if not is_name(name) or len(name) > _LONGEST or name.startswith(".") or name in _RESERVED:
        raise Misuse(
            f"an agent cannot be called {name[:80]!r}",
            hint=f"use at most {_LONGEST} lower-case letters, digits, '.', '_' and '-'",
        )


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
"""The state that an agent begins with, and as an engine is shown it; SQLite keeps it while the agent runs."""
LOGS = "logs"
MESSAGE_FILE = "message.txt"
"""In the logs: the whole of a text that is too long for the prompt."""
SHARED = "state.path"
"""Where the state of a version lies, which it shares with others."""
# Besides these, nothing that a running agent writes belongs to its code.
_WRITTEN = (
    STATE,
    "state.db",
    "state.db-wal",
    "state.db-shm",
    "state.lock",
    # Of a state that lay in files.
    "state.json.new",
    "state.history.jsonl",
    "state.cut.json",
    LOGS,
    ".git",
    "__pycache__",
    ".pytest_cache",
)
# Where the state lies is no part of a version, and no agent writes it either.
UNTRACKED = (*_WRITTEN, SHARED)
IGNORED = "".join(f"{name}\n" for name in _WRITTEN if name != ".git")
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


class Severity(StrEnum):
    """How bad it was, in the words of those who give feedback."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    CRITICAL = "critical"


CALL_SECONDS = 300.0
"""How long a caller waits for an answer who says nothing else."""
