"""Who may come into the console, and what every answer of it says to the browser."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.server.caller import Caller
from ratchet.server.console.visits import Visits
from ratchet.server.problems import problem

ROOT = "/console"
HOME = f"{ROOT}/"
ENTER = f"{ROOT}/enter"
_ASSETS = f"{ROOT}/assets/"
# Scripts and styles from here alone, none inside a page: what agents and candidates wrote can never run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Door:
    """Lets visitors in, sends the others to the way in, and puts the security headers on every answer.

    One who sends the server's token as a bearer token may look as well; only a visit can act, since only it has forms.
    The token of a project opens nothing here: the pages go over all projects.
    """

    def __init__(self, app: ASGIApp, visits: Visits) -> None:
        self._app, self._visits = app, visits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # An answer that is no page, such as a report, has a policy of its own.
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        # A form sends the fields that nobody filled in as well.
        given = [
            each for each in scope["query_string"].split(b"&") if each.partition(b"=")[1:] != (b"=", b"")
        ]
        scope["query_string"] = b"&".join(given)
        connection = HTTPConnection(scope)
        state = scope.setdefault("state", {})
        visit = self._visits.read(connection.cookies.get(self._visits.cookie, ""))
        state["visit"] = visit
        if visit is not None:
            state["caller"] = Caller(opened=frozenset(visit.shown))
        path = scope["path"]
        caller: Caller | None = state.get("caller")
        if (caller is not None and caller.is_operator) or path == ENTER or path.startswith(_ASSETS):
            await self._app(scope, receive, guarded)
            return
        await self._refuse(connection)(scope, receive, guarded)

    def _refuse(self, connection: HTTPConnection) -> ASGIApp:
        scope = connection.scope
        if scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("Accept", ""):
            wanted = scope["path"] + (
                f"?{query}" if (query := scope["query_string"].decode("latin-1")) else ""
            )
            return RedirectResponse(f"{ENTER}?next={quote(wanted)}", HTTPStatus.SEE_OTHER)
        return problem(
            scope, 401, "Unauthorised", "nobody is known here by this name", hint=f"come in by {ENTER}"
        )


def inside(wanted: str) -> str:
    """A page of the console to go to: what was wanted, if it is one."""
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return HOME
    is_local = not parts.scheme and not parts.netloc and parts.path.startswith(HOME)
    # A browser reads `/\` as `//`, which is another host.
    safe = is_local and "\\" not in wanted and wanted.isprintable() and not parts.path.startswith("//")
    return wanted if safe and parts.path != ENTER else HOME
