"""Visits: somebody came in with the token, and a signed cookie says so from then on.

Nothing is kept on the server. A new token ends every visit, since the cookies are signed with a key made from it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass, replace

LIFETIME_SECONDS = 7 * 24 * 3600
_LONGEST_COOKIE = 2048
_MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Visit:
    """`shown` are the hashes of projects' own tokens that the visitor has shown as well, the newest last."""

    nonce: str
    expires: int
    shown: tuple[str, ...] = ()

    def showing(self, token_hash: str) -> Visit:
        """The visit after one more token was shown. The cookie holds only so many."""
        others = [each for each in self.shown if each != token_hash]
        return replace(self, shown=(*others, token_hash)[-_MOST_SHOWN:])


class Visits:
    """Makes and reads the cookies of one server's visitors."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._key = hmac.digest(self._token, b"ratchet console", "sha256")
        # Browsers do not tell ports apart: two servers on one machine need two names.
        self.cookie = f"ratchet_{hashlib.sha256(self._key).hexdigest()[:8]}"

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)

    def begin(self) -> Visit:
        return Visit(secrets.token_urlsafe(16), int(time.time()) + LIFETIME_SECONDS)

    def sealed(self, visit: Visit) -> str:
        """The cookie's value."""
        said = json.dumps([visit.nonce, visit.expires, visit.shown]).encode()
        return f"{_encode(said)}.{_encode(self._sign(b'visit', said))}"

    def read(self, cookie: str) -> Visit | None:
        """The visit, if this server made the cookie and its time is not over."""
        said, _, signature = cookie.partition(".")
        try:
            if len(cookie) > _LONGEST_COOKIE:
                return None
            content, given = _decode(said), _decode(signature)
        except ValueError:
            return None
        if not hmac.compare_digest(given, self._sign(b"visit", content)):
            return None
        nonce, expires, shown = json.loads(content)
        return Visit(nonce, expires, tuple(shown)) if expires > time.time() else None

    def csrf(self, visit: Visit) -> str:
        """What a form of this visit carries, and nobody else can know."""
        return _encode(self._sign(b"csrf", visit.nonce.encode()))

    def is_csrf(self, visit: Visit, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self.csrf(visit).encode())

    def _sign(self, what: bytes, content: bytes) -> bytes:
        return hmac.digest(self._key, what + b":" + content, "sha256")


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
