"""Tokens by which the Architect knows an agent's servers: each names one version of one agent, and is signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from ratchet.agents.place import check_name
from ratchet.kernel import Misuse

_COMMIT = re.compile(r"[0-9a-f]{7,64}", re.ASCII)
# The longest name, the longest commit, the signature, and what parts them.
_LONGEST = 64 + 64 + 43 + 2


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whose token it is."""

    agent: str
    commit: str


class Tokens:
    """Made anew by each process that starts agents: what an earlier one has given out is worth nothing any more."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def mint(self, agent: str, commit: str) -> str:
        """A token of plain letters, digits and `-._~`, for the environment of a server. Raises `Misuse`."""
        check_name(agent)
        if not _COMMIT.fullmatch(commit):
            raise Misuse(f"{commit[:80]!r} is not a commit", hint="name a version by its full hash")
        said = f"{agent}~{commit}"
        return f"{said}~{self._signature(said)}"

    def read(self, token: str) -> Bearer | None:
        """Whose token it is; nobody's, unless it was made here and is whole."""
        if len(token) > _LONGEST or not token.isascii() or token.count("~") != 2:
            return None
        said, _, signature = token.rpartition("~")
        if not hmac.compare_digest(signature, self._signature(said)):
            return None
        agent, _, commit = said.partition("~")
        return Bearer(agent, commit)

    def _signature(self, said: str) -> str:
        digest = hmac.digest(self._secret, said.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
