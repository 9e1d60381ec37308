"""Logins of agent programs with an account, used where they are: read when a session begins, and never written.

A token goes to its program the way a key does, so that no command of a session can read it from a file.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A token that ends in the middle of a session's first answer is of no use.
_SPARE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Login:
    """`until` is when its token ends, in seconds since 1970; nothing if it does not say."""

    token: str = field(repr=False)
    file: Path
    account: str | None = None
    until: float | None = None
    is_key: bool = False
    """Whether it is a key of the API, which the program was given once."""

    @property
    def expired(self) -> bool:
        return self.until is not None and self.until < time.time() + _SPARE_SECONDS


def codex_login(environment: Mapping[str, str]) -> Login | None:
    """The login of the Codex CLI, if there is one that can be read."""
    file = _place(environment, "CODEX_HOME", ".codex", "auth.json")
    found = _read(file)
    if file is None or found is None:
        return None
    tokens = found.get("tokens")
    if isinstance(tokens, dict) and isinstance(token := tokens.get("access_token"), str) and token:
        account = tokens.get("account_id")
        return Login(token, file, account if isinstance(account, str) else None, _end_of(token))
    key = found.get("OPENAI_API_KEY")
    return Login(key, file, is_key=True) if isinstance(key, str) and key else None


def claude_login(environment: Mapping[str, str]) -> Login | None:
    """The login of Claude Code, if there is one that can be read."""
    file = _place(environment, "CLAUDE_CONFIG_DIR", ".claude", ".credentials.json")
    found = (_read(file) or {}).get("claudeAiOauth")
    if file is None or not isinstance(found, dict):
        return None
    token, until = found.get("accessToken"), found.get("expiresAt")
    if not isinstance(token, str) or not token:
        return None
    return Login(token, file, until=until / 1000 if isinstance(until, int | float) else None)


def _place(environment: Mapping[str, str], variable: str, folder: str, name: str) -> Path | None:
    if own := environment.get(variable):
        return Path(own, name)
    home = environment.get("HOME")
    return Path(home, folder, name) if home else None


def _read(file: Path | None) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_bytes()) if file else None
    except (OSError, ValueError):
        # As good as none: whoever wrote it will write it again at the next login.
        return None
    return found if isinstance(found, dict) else None


def _end_of(token: str) -> float | None:
    """When a JSON Web Token ends, by its own word."""
    try:
        _, claims, _ = token.split(".")
        end = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    except (ValueError, KeyError, TypeError):
        return None
    return float(end) if isinstance(end, int | float) else None
