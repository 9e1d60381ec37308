"""What Ratchet tells an agent's server about itself, and the log of that server."""

from __future__ import annotations

import logging
import logging.handlers
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

URL = "RATCHET_AGENTS_URL"
ROLE = "RATCHET_AGENT_ROLE"
LISTEN = "RATCHET_AGENT_LISTEN"
"""The address at which a server that runs without Ratchet listens, if that is not this machine's own."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All `None` in a process that Ratchet has not started."""

    agent: str | None
    """The agent's name."""
    commit: str | None
    """Its version."""
    role: str | None
    """`runner` or `tuner`."""
    url: str | None
    """Where the Architect and all agents answer."""
    token: str | None
    """By which the Architect knows this agent. Not for anyone else."""

    def __repr__(self) -> str:
        return f"Surroundings(agent={self.agent!r}, commit={self.commit!r}, role={self.role!r}, url={self.url!r})"


def surroundings() -> Surroundings:
    """What this process was told when it was started."""
    return Surroundings(
        agent=_variable("RATCHET_AGENT"),
        commit=_variable("RATCHET_AGENT_COMMIT"),
        role=_variable(ROLE),
        url=(_variable(URL) or "").rstrip("/") or None,
        token=_variable("RATCHET_AGENT_TOKEN"),
    )


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None


SECRETS = "RATCHET_AGENT_SECRETS"
"""Names the variables of the environment whose values are secret."""
_MASK = "***"


def has_secrets() -> bool:
    return bool(os.environ.get(SECRETS))


def without_secrets(value: Any) -> Any:
    """The same value of JSON, with every secret in its texts hidden."""
    if isinstance(value, str):
        for name in filter(None, os.environ.get(SECRETS, "").split(",")):
            secret = os.environ.get(name)
            value = value.replace(secret, _MASK) if secret else value
        return value
    if isinstance(value, dict):
        return {without_secrets(key): without_secrets(each) for key, each in value.items()}
    return [without_secrets(each) for each in value] if isinstance(value, list | tuple) else value


_ROLES = ("runner", "tuner")
_BYTES = 4 * 1024 * 1024
_KEPT = 3


class _Quiet(logging.handlers.RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk, or one that cannot be written, costs lines of the log and nothing else."""


class _Form(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return str(without_secrets(super().format(record)))


class _RoleFile(logging.Handler):
    """Writes into the log of this server. A process that is none of the two has no such file."""

    def __init__(self) -> None:
        super().__init__()
        self._role: str | None = None
        self._file: _Quiet | None = None

    def use(self, role: str) -> None:
        self.acquire()
        try:
            if self._file is None or self._role != role:
                self.close_file()
                self._role, self._file = role, _opened(role)
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        if self._file is None:
            role = _guessed_role()
            if role is None:
                return
            self.use(role)
        if self._file is not None:
            self._file.handle(record)

    def close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.close_file()
        super().close()


def _opened(role: str) -> _Quiet | None:
    path = Path("logs", f"{role}.log").absolute()
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError:
        return None
    file = _Quiet(path, maxBytes=_BYTES, backupCount=_KEPT, encoding="utf-8", errors="replace", delay=True)
    file.setFormatter(_Form("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return file


def _guessed_role() -> str | None:
    """Before a server runs: what Ratchet said, or the name of the program."""
    told = surroundings().role or Path(sys.argv[0]).stem
    return told if told in _ROLES else None


_role_file = _RoleFile()

log = logging.getLogger("agent")
"""Writes to the log of this server."""
log.setLevel(logging.INFO)
log.addHandler(_role_file)


def log_as(role: str) -> None:
    """Write into the log of `role` from now on, and there too what libraries warn of."""
    _role_file.use(role)
    log.propagate = False
    logging.getLogger().addHandler(_role_file)
