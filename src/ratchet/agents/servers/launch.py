"""What is to be started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Launch:
    """A version of an agent in its directory, and where its servers find Ratchet on this machine.

    `environment` is what they are given besides the variables that follow from the rest; it is the only way in which a
    secret, such as the version's own token, can reach them.
    """

    agent: str
    commit: str
    directory: Path
    architect_port: int
    environment: Mapping[str, str] = field(default_factory=dict)
