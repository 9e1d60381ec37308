"""Who may ask: whoever holds the token."""

from __future__ import annotations

import hmac

from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ratchet.server.problems import problem

# For probes, Prometheus and people who read the description; nothing in them is anybody's secret.
OPEN = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/openapi.json"})

# Describes the scheme in OpenAPI; `Authorisation` is what enforces it.
bearer = HTTPBearer(
    auto_error=False, description="The token in server.token, or in the file `token` of the home."
)


class Authorisation:
    """Answers 401 to everything but `OPEN` without the bearer token, before anything else looks at the request."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN or self._holds_token(scope):
            await self._app(scope, receive, send)
            return
        refused = problem(
            scope,
            401,
            "Unauthorised",
            "the bearer token is missing or wrong",
            hint="send `Authorization: Bearer TOKEN`; the token is in server.token or in the file `token` of the home",
            headers={"WWW-Authenticate": 'Bearer realm="ratchet"'},
        )
        await refused(scope, receive, send)

    def _holds_token(self, scope: Scope) -> bool:
        given = Headers(scope=scope).get("Authorization", "").encode("latin-1")
        scheme, _, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)
