"""Who speaks to the Architect."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from ratchet.agents.tokens import Bearer, Tokens

# Longer than any token that is given out, or that anybody would choose.
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """A version of an agent; without one, whoever holds the API token."""

    version: Bearer | None = None

    @property
    def actor(self) -> str:
        """As the ledger calls it."""
        return "mcp" if self.version is None else f"agent {self.version.agent}"


class Callers:
    """Tells who it is that brings a token."""

    def __init__(self, tokens: Tokens, api_token: str) -> None:
        self._tokens = tokens
        self._api_token = api_token.encode()

    def of(self, authorization: bytes) -> Caller | None:
        """The caller with this value of the header; nobody, if it is none that is known."""
        scheme, _, token = authorization.partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token or len(token) > _LONGEST:
            return None
        # An API token that is empty is nobody's.
        if self._api_token and hmac.compare_digest(token, self._api_token):
            return Caller()
        version = self._tokens.read(token.decode("latin-1"))
        return None if version is None else Caller(version)
