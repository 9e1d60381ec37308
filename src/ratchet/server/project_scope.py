"""Who may ask, and what a project's own token opens: that project's things, and nothing that is not listed here.

A request says what it is about by the numbers in its path and its query. Each of them belongs to a project or to none,
and the caller must be allowed to use that project before the endpoint is asked.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Header, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ratchet.agents.access import KeyHolder, KeyScope, holder_of, looks_like_key
from ratchet.agents.contract import Role
from ratchet.engines.registry import names_address
from ratchet.kernel import LedgerError, NotFound
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.projects import Kind, Owner, owner_of, project_of_token
from ratchet.operations import Operation
from ratchet.server.every_operation import EVERY
from ratchet.server.fields import MAX_ID
from ratchet.server.problems import answer_for, problem
from ratchet.server.service import (
    HEADER,
    NOBODY,
    Access,
    Api,
    Caller,
    Forbidden,
    OpenRequests,
    TooManyOpen,
    hash_of,
)

KINDS: dict[str, Kind] = {
    "project_id": "project",
    "protocol_id": "run",
    "run_id": "run",
    "step_id": "step",
    "attempt_id": "attempt",
    "job_id": "job",
    "approval_id": "approval",
}

# What one who holds only a project's token may ask, besides the operations that say so. Everything else is the
# operator's: what changes a project or its secrets, what names files of this machine, and what goes over all projects
# and cannot be cut to one.
_OF_PROJECTS = """
GET  /protocols/{protocol_id}/events/stream
GET  /attempts/{attempt_id}/diff
GET  /attempts/{attempt_id}/log/stream
GET  /artifacts/{sha256}
GET  /events/stream
"""
ALLOWED = frozenset(
    [
        *(tuple(line.split()) for line in _OF_PROJECTS.split("\n") if line),
        *((each.method, each.path) for each in EVERY if each.project_too),
    ]
)
_AGENT, _CALL = "/agents/{name}", ("POST", "/agents/{name}/call")
# What the key of an agent opens without the scope `admin`.
_OF_KEYS = {
    ("GET", "/agents/{name}"): KeyScope.CALL,
    ("GET", "/agents/{name}/tools"): KeyScope.CALL,
    _CALL: KeyScope.CALL,
    ("POST", "/agents/{name}/feedback"): KeyScope.FEEDBACK,
}
# Only for the description: what counts is read with the bearer token.
ProjectToken = Annotated[
    str | None, Header(alias=HEADER, description="the token of the project that this is about, if it has one")
]
# As the endpoints read numbers, or `+7` would pass here and be 7 there.
_NUMBER = TypeAdapter(int)
# Lists that cannot be cut to a project, but to one of its runs.
_BY_RUN = frozenset({"/queues/jobs", "/approvals"})


async def guard(request: Request, api: Api, _: ProjectToken = None) -> None:
    """Let a request pass, or raise `Forbidden`, `ProjectTokenNeeded` or `NotFound`."""
    path = request.scope["route"].path
    if api.caller.key is not None:
        await _check_key(request, api.caller.key, path)
    elif not api.caller.is_operator:
        if (request.method, path) not in ALLOWED:
            raise Forbidden(
                f"the token of a project does not open {request.method} {path}",
                hint="ask with the server's token",
            )
        if path in _BY_RUN and "run_id" not in request.query_params:
            raise Forbidden(f"{path} goes over all projects", hint="name a run of the project with run_id")
    named = list(_named(request))
    if named:
        await run_in_threadpool(_check, api, named)


async def _check_key(request: Request, key: KeyHolder, path: str) -> None:
    """A key opens what is below the address of its agent, as far as its scopes go."""
    scope = _OF_KEYS.get((request.method, path), KeyScope.ADMIN)
    if (request.method, path) == _CALL and await _names_tuner(request):
        scope = KeyScope.FEEDBACK
    if not path.startswith(_AGENT) or not key.may(str(request.path_params.get("name")), scope):
        raise Forbidden(
            f"this key of agent {key.agent} does not open {request.method} {path}",
            hint="ask with the server's token, or with a key of this agent that has the scope",
        )


async def _names_tuner(request: Request) -> bool:
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("server") == Role.TUNER


def _named(request: Request) -> Iterator[tuple[Kind, str]]:
    """Everything with a number that the request is about."""
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        if name in KINDS:
            yield KINDS[name], str(value)


def _check(api: Access, named: list[tuple[Kind, str]]) -> None:
    with api.read() as tx:
        for kind, number in named:
            owner = _owner(tx, kind, number)
            if owner is not None:
                api.caller.enter(tx, owner)
            elif not api.caller.is_operator:
                # Not left to the endpoint: a number that names nothing now may name somebody else's a moment later.
                raise NotFound(kind, number)


def enter(api: Access, tx: Transaction, kind: Kind, number: int) -> None:
    """The same for a number that came in a body. One that names nothing is left to the endpoint."""
    owner = owner_of(tx, kind, number)
    if owner is not None:
        api.caller.enter(tx, owner)


def check_names(api: Access, operation: Operation[..., Any], sent: Mapping[str, Any]) -> None:
    """Have all but the operator name engines and models by their names, and places of the project.

    Raises `Forbidden`, before anything is opened.
    """
    if api.caller.is_operator:
        return
    for name, value in sent.items():
        about = operation.parameters[name].about
        if (about.engine and names_address(value)) or (about.place and _leads_out(str(value))):
            raise Forbidden(
                f"only with the server's token {name} names an address or a file outside of the project",
                hint="name an engine or a model by its name, and a path from the project's clone on",
            )


def _leads_out(path: str) -> bool:
    return "://" in path or path.startswith(("/", "~")) or ".." in PurePosixPath(path).parts


def _owner(tx: Transaction, kind: Kind, text: str) -> Owner | None:
    try:
        number = _NUMBER.validate_python(text)
    except ValidationError:
        return None
    return owner_of(tx, kind, number) if 0 < number <= MAX_ID else None


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
_LOOKUPS = 4

# Describes the scheme in OpenAPI; `Authorisation` is what enforces it.
bearer = HTTPBearer(
    auto_error=False,
    description="The token in server.token, or in the file `token` of the home. The token of a project alone opens that"
    " project's things.",
)


class Authorisation:
    """Answers 401 to everything but `OPEN` without a bearer token, before anything else looks at the request."""

    def __init__(self, app: ASGIApp, token: str, ledger: Ledger, open_requests: OpenRequests) -> None:
        self._app = app
        self._token = token.encode()
        self._ledger = ledger
        self._open_requests = open_requests
        # Of the threads that look up tokens. The others are left for those whose token is known.
        self._lookups = CapacityLimiter(_LOOKUPS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _is_console(scope) and "Authorization" not in Headers(scope=scope):
            # It has a door of its own, for people: see `console.door`.
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if scope["path"] in OPEN or scope["path"].startswith(_SIGNED):
            state["caller"] = NOBODY
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._caller(Headers(scope=scope))
            if caller is not None:
                state["caller"] = caller
                with self._open_requests.one(caller):
                    await self._app(scope, receive, send)
                return
        except (LedgerError, TooManyOpen) as error:
            await answer_for(scope, error)(scope, receive, send)
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
            holder = await run_sync(holder_of, self._ledger, text, limiter=self._lookups)
            return None if holder is None else Caller(key=holder)
        project_id = await run_sync(self._project, hash_of(token), limiter=self._lookups)
        return None if project_id is None else Caller(project_id=project_id)

    def _project(self, token_hash: str) -> int | None:
        with self._ledger.read() as tx:
            return project_of_token(tx, token_hash)


def _is_console(scope: Scope) -> bool:
    path: str = scope["path"]
    return path in ("/", "/console") or path.startswith("/console/")
