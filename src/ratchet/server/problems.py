"""Errors as RFC 9457 problem documents: one shape for everything that goes wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ratchet.kernel import RatchetError
from ratchet.observe.logs import logger

_log = logger(__name__)
MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = "2"
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_NAMES = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "TooLarge",
    429: "TooManyOpen",
    503: "Unavailable",
}
_DESCRIPTIONS = {
    400: "The body is no JSON, or what cannot be undone was not confirmed",
    401: "A token or a signature is missing or wrong",
    403: "The token is that of another project, or this is for the operator",
    404: "There is no such thing",
    409: "The thing is not in a state that allows this",
    413: "The body is too long",
    422: "A value is wrong",
    424: "An engine that is needed cannot work now",
    502: "A remote or a forge did not answer as it should",
    429: "The caller has too many requests open",
    503: "The database, or something else that is needed, is away",
}


class Problem(BaseModel):
    type: str = Field(description="a name for this kind of problem that programs can rely on")
    title: str
    status: int
    detail: str = Field(description="what is wrong here, naming the offending value")
    hint: str | None = Field(None, description="what to do next")
    request_id: str | None = Field(
        None, description="the id under which the logs and events know this request"
    )
    errors: dict[str, str] | None = Field(None, description="by field, what is wrong with the input")


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        # ASCII: a problem may quote input that is no valid text.
        return json.dumps(content).encode()


_CONTENT = {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    "default": {"description": "What went wrong, as an RFC 9457 problem", "content": _CONTENT}
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of the problems that an endpoint is known for."""
    return {status: {"description": _DESCRIPTIONS[status], "content": _CONTENT} for status in statuses}


def problem(
    scope: Scope,
    status: int,
    name: str,
    detail: str,
    *,
    hint: str | None = None,
    errors: dict[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    """The answer for a problem. Its `name` is written like that of an error class."""
    title = _CAPITAL.sub(" ", name).capitalize()
    found = Problem(
        type=f"urn:ratchet:problem:{title.lower().replace(' ', '-')}",
        title=title,
        status=status,
        detail=detail,
        hint=hint,
        request_id=scope.get("state", {}).get("request_id"),
        errors=errors,
    )
    wanted = {"WWW-Authenticate": 'Bearer realm="ratchet"'} if status == 401 else {}
    return ProblemResponse(found.model_dump(exclude_none=True), status, {**wanted, **(headers or {})})


def answer_for(scope: Scope, error: RatchetError) -> ProblemResponse:
    """The answer for one of our own errors."""
    headers = {"Retry-After": RETRY_SECONDS} if error.http_status in (429, 503) else None
    if error.http_status >= 500:
        _log.warning("request failed", error=str(error))
    return problem(
        scope,
        error.http_status,
        type(error).__name__,
        str(error),
        hint=error.hint,
        headers=headers,
    )


async def _known(request: Request, error: RatchetError) -> ProblemResponse:
    return answer_for(request.scope, error)


async def _invalid(request: Request, error: RequestValidationError) -> ProblemResponse:
    errors = {".".join(map(str, each["loc"])): _reason(each) for each in error.errors()}
    told = "; ".join(f"{field}: {message}" for field, message in errors.items())
    if any(each["type"] == "json_invalid" for each in error.errors()):
        return problem(request.scope, 400, "MalformedJson", told, errors=errors)
    return problem(request.scope, 422, "InvalidInput", told, errors=errors)


def _reason(found: Mapping[str, Any]) -> str:
    unreadable = found["type"] == "json_invalid"
    return f"{found['msg']}: {found['ctx']['error']}" if unreadable else str(found["msg"])


async def _http(request: Request, error: HTTPException) -> ProblemResponse:
    status, path = error.status_code, request.scope["path"]
    detail, hint = str(error.detail), None
    if status == 404:
        detail, hint = f"there is nothing at {path}", "GET /openapi.json lists what there is"
    elif status == 405:
        detail = f"{path} does not take {request.method}"
    name = _NAMES.get(status, f"Http{status}")
    return problem(request.scope, status, name, detail, hint=hint, headers=error.headers)


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    RatchetError: _known,
    RequestValidationError: _invalid,
    HTTPException: _http,
}


class Problems:
    """Answers for errors that nobody expected: 500 without a word of the inside, which goes to the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except HTTPException as error:
            if not started:
                refused = await _http(Request(scope), error)
                await refused(scope, receive, send)
        except ClientDisconnect:
            _log.debug("a caller left before its body had come", path=scope.get("path"))
        except Exception:  # noqa: BLE001 - the last place: the caller gets an answer, the log gets the reason
            _log.exception("a request went wrong", path=scope.get("path"))
            if not started:
                answer = problem(
                    scope,
                    500,
                    "Unexpected",
                    "something went wrong inside; the server's log says what",
                    hint="look for the request_id in the log",
                )
                await answer(scope, receive, send)
