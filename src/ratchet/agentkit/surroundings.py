"""What Ratchet tells an agent's server about itself, through the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

URL = "RATCHET_AGENTS_URL"
ROLE = "RATCHET_AGENT_ROLE"


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
        agent=_told("RATCHET_AGENT"),
        commit=_told("RATCHET_AGENT_COMMIT"),
        role=_told(ROLE),
        url=(_told(URL) or "").rstrip("/") or None,
        token=_told("RATCHET_AGENT_TOKEN"),
    )


def _told(name: str) -> str | None:
    return os.environ.get(name) or None
