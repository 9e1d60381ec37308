"""Who may ask: whoever holds the server's token, and for the things of one project whoever holds that one's."""

from __future__ import annotations

import hmac

from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ratchet.agents.access import holder_of, looks_like_key
from ratchet.kernel import LedgerError
from ratchet.ledger import Ledger
from ratchet.ledger.projects import project_of_token
from ratchet.server.problems import answer_for, problem
from ratchet.server.service import HEADER, NOBODY, Caller, hash_of

# For probes, Prometheus and people who read the description; nothing in them is anybody's secret. Forges sign what they
# send in their own ways.
OPEN = frozenset(
    {
        "/health",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/openapi.json",
        "/webhooks/github",
        "/webhooks/gitlab",
    }
)
# Each request below it is signed with the secret of its trigger.
_SIGNED = "/webhooks/triggers/"
_LONGEST_TOKEN = 4096 * 4

# Describes the scheme in OpenAPI; `Authorisation` is what enforces it.
bearer = HTTPBearer(
    auto_error=False,
    description="The token in server.token, or in the file `token` of the home. The token of a project alone opens that"
    " project's things.",
)


class Authorisation:
    """Answers 401 to everything but `OPEN` without a bearer token, before anything else looks at the request."""

    def __init__(self, app: ASGIApp, token: str, ledger: Ledger) -> None:
        self._app = app
        self._token = token.encode()
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _is_console(scope) and "Authorization" not in Headers(scope=scope):
            # It has a door of its own, for people: see `console.door`.
            await self._app(scope, receive, send)
            return
        try:
            caller = (
                NOBODY
                if scope["path"] in OPEN or scope["path"].startswith(_SIGNED)
                else await self._caller(Headers(scope=scope))
            )
        except LedgerError as error:
            await answer_for(scope, error)(scope, receive, send)
            return
        if caller is not None:
            scope.setdefault("state", {})["caller"] = caller
            await self._app(scope, receive, send)
            return
        refused = problem(
            scope,
            401,
            "Unauthorised",
            "the bearer token is missing or wrong",
            hint="send `Authorization: Bearer TOKEN`; the token is in server.token or in the file `token` of the home",
        )
        await refused(scope, receive, send)

    async def _caller(self, headers: Headers) -> Caller | None:
        given = headers.get("Authorization", "").encode("latin-1")
        scheme, _, token = given.partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not 0 < len(token) <= _LONGEST_TOKEN:
            return None
        if hmac.compare_digest(token, self._token):
            shown = headers.get(HEADER)
            return Caller(shown=None if shown is None else hash_of(shown.encode("latin-1")))
        text = token.decode("latin-1")
        if looks_like_key(text):
            holder = await run_in_threadpool(holder_of, self._ledger, text)
            return None if holder is None else Caller(key=holder)
        project_id = await run_in_threadpool(self._project, hash_of(token))
        return None if project_id is None else Caller(project_id=project_id)

    def _project(self, token_hash: str) -> int | None:
        with self._ledger.read() as tx:
            return project_of_token(tx, token_hash)


def _is_console(scope: Scope) -> bool:
    path: str = scope["path"]
    return path in ("/", "/console") or path.startswith("/console/")
