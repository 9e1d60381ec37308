"""Webhooks of forges. They bring no token of this server: each is signed in the way of its forge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from ratchet.forges import Delivery, MalformedDelivery, Provider, UnsignedDelivery
from ratchet.kernel import NotFound, RatchetError
from ratchet.observe import metrics
from ratchet.protocols.webhooks import ReceivedDelivery, receive, require_proof
from ratchet.runtime.operations.jobs import AcceptedAnswer, JobAnswer
from ratchet.server.fields import MAX_ID
from ratchet.server.operation import shape_of
from ratchet.server.problems import documented
from ratchet.server.service import Access, Api
from ratchet.workflows.triggers import (
    RefusedMessage,
    TakenMessage,
    UnsignedMessage,
    require_signature,
    take_webhook,
)

router = APIRouter(tags=["webhooks"], responses=documented(400, 401, 404, 409, 413, 422))

_REFUSED: dict[type[RatchetError], str] = {
    MalformedDelivery: "malformed",
    UnsignedDelivery: "unsigned",
    NotFound: "unknown",
    RefusedMessage: "malformed",
    UnsignedMessage: "unsigned",
}
_JSON: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "What the forge sends. Its signature is over these very bytes.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}

ProjectId = Annotated[
    int | None, Query(ge=1, le=MAX_ID, description="the project, for what names no repository")
]
RunId = Annotated[int | None, Query(ge=1, le=MAX_ID, description="the protocol, for what names no branch")]


def _body_from(source: str, require: Callable[[Request], None]) -> Any:
    """The body, which is read only where `require` finds the request signed. Whether rightly so is seen then."""

    async def body(request: Request) -> bytes:
        try:
            require(request)
        except (UnsignedDelivery, UnsignedMessage):
            _count(source, "unsigned")
            raise
        return await request.body()

    return Depends(body)


def _body_of(provider: Provider) -> Any:
    return _body_from(provider, lambda request: require_proof(Delivery.of(provider, request.headers, b"")))


GitHubBody = Annotated[bytes, _body_of("github")]
GitLabBody = Annotated[bytes, _body_of("gitlab")]
TriggerBody = Annotated[
    bytes,
    _body_from(
        "trigger", lambda request: require_signature(str(request.path_params["name"]), request.headers)
    ),
]


@router.post("/webhooks/github", response_model=shape_of(AcceptedAnswer), openapi_extra=_JSON)
def github(
    api: Api, request: Request, body: GitHubBody, project_id: ProjectId = None, protocol_run_id: RunId = None
) -> AcceptedAnswer:
    """For GitHub, signed with `X-Hub-Signature-256`. The same delivery twice changes nothing."""
    return _take(api, "github", request, body, project_id, protocol_run_id)


@router.post("/webhooks/gitlab", response_model=shape_of(AcceptedAnswer), openapi_extra=_JSON)
def gitlab(
    api: Api, request: Request, body: GitLabBody, project_id: ProjectId = None, protocol_run_id: RunId = None
) -> AcceptedAnswer:
    """For GitLab, with its secret in `X-Gitlab-Token`. The same delivery twice changes nothing."""
    return _take(api, "gitlab", request, body, project_id, protocol_run_id)


@router.post("/webhooks/triggers/{name}", status_code=202, openapi_extra=_JSON)
def trigger(api: Api, request: Request, body: TriggerBody, name: str) -> TakenMessage:
    """For anyone who holds the secret of a trigger: `X-Ratchet-Delivery`, and `X-Ratchet-Signature` over
    `DELIVERY.BODY`; or `X-Hub-Signature-256` over the body. The same delivery twice has one run."""
    try:
        taken = take_webhook(api.runtime, name, request.headers, body, actor=f"webhook:{name}")
    except RatchetError as error:
        _count("trigger", _REFUSED.get(type(error), "failed"))
        raise
    _count("trigger", "repeated" if taken.repeated else "recorded")
    return taken


def _take(
    api: Access, provider: Provider, request: Request, body: bytes, project_id: int | None, run_id: int | None
) -> AcceptedAnswer:
    delivery = Delivery.of(provider, request.headers, body)
    try:
        received = receive(
            api.runtime, delivery, project_id=project_id, run_id=run_id, request_id=api.request_id
        )
    except RatchetError as error:
        _count(provider, _REFUSED.get(type(error), "failed"))
        raise
    _count(provider, received.outcome)
    return _answer(api, received)


def _answer(api: Access, received: ReceivedDelivery) -> AcceptedAnswer:
    with api.read() as tx:
        job = None if received.job_id is None else JobAnswer.at(tx, received.job_id)
    return AcceptedAnswer(received.message, job)


def _count(provider: str, status: str) -> None:
    metrics.webhooks.labels(provider=provider, status=status).inc()
