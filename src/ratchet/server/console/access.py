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
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.kernel import RatchetError
from ratchet.server.problems import problem
from ratchet.server.service import Caller

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
            scope,
            401,
            "Unauthorised",
            "there is no session of the console by this cookie",
            hint=f"sign in at {ENTER}",
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


FIELD = "csrf"
HEADER = "X-CSRF-Token"


class ForeignForm(RatchetError):
    """The form does not come from a page that this server gave to this visitor."""

    http_status = 403


async def _act(request: Request) -> None:
    """Raises `ForeignForm` unless the request comes from a form of the visitor's own."""
    visits: Visits = request.app.state.visits
    visit = request.state.visit
    if visit is None:
        raise ForeignForm(
            "only a caller who signed in to the console can act in it", hint="use the API instead"
        )
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise ForeignForm("the form was sent by a page of another site", hint="send it from the console")
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("Host"):
        raise ForeignForm(f"the form was sent by a page of {origin}", hint="send it from the console")
    given = request.headers.get(HEADER) or (await request.form()).get(FIELD)
    if not isinstance(given, str) or not visits.is_csrf(visit, given):
        raise ForeignForm("the form is out of date", hint="load the page again and send it from there")


# What every POST of the console depends on.
Acting = Annotated[None, Depends(_act)]


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
