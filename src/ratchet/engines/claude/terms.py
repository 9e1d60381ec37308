"""What holds for every session of one engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.config.claude_settings import Claude
from ratchet.engines.claude.conversations import Conversations
from ratchet.engines.secrets import Secrets


@dataclass(frozen=True, slots=True)
class Terms:
    settings: Claude
    model: str | None
    environment: Mapping[str, str]
    """Of the process around, to choose from."""
    home: Path
    """Of Ratchet."""
    key: str
    secrets: Secrets
    kept: Conversations
