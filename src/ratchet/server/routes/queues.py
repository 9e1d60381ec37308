"""Queues: what lies in them, and letting them stand still."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ratchet.kernel import NotFound
from ratchet.runtime import JobStatus, QueueState, list_queues
from ratchet.server.service import Access, Api

router = APIRouter(tags=["queues"])


class Queue(BaseModel):
    queued: int
    scheduled: int
    waiting: int
    started: int
    finished: int
    failed: int
    cancelled: int
    paused: bool
    concurrency: int | None = Field(description="jobs that run at once in the whole fleet; null is no limit")
    rate_limit: int | None = Field(description="jobs that may start in rate_seconds")
    rate_seconds: float | None

    @classmethod
    def of(cls, state: QueueState) -> Queue:
        return cls(
            **{str(status): state.counts.get(status, 0) for status in JobStatus},
            paused=state.paused,
            concurrency=state.concurrency,
            rate_limit=state.rate_limit,
            rate_seconds=state.rate_seconds,
        )


class Queues(BaseModel):
    """Every queue under its name, beside the name of what carries them."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Queue]

    backend: Literal["ledger"] = "ledger"


@router.get("/queues")
def queues(api: Api) -> Queues:
    """Every queue with its limits, and how many jobs it holds in each status."""
    with api.read() as tx:
        states = list_queues(tx, api.runtime.rules)
    return Queues.model_validate({"backend": "ledger"} | {state.name: Queue.of(state) for state in states})


@router.post("/queues/{name}/pause")
def pause(api: Api, name: str) -> Queue:
    """Start no more jobs of this queue, in the whole fleet. Those that run are not touched."""
    _check(api, name)
    api.runtime.pause_queue(name, actor=api.actor, request_id=api.request_id)
    return _one(api, name)


@router.post("/queues/{name}/resume")
def resume(api: Api, name: str) -> Queue:
    """Let a paused queue go on."""
    _check(api, name)
    api.runtime.resume_queue(name, actor=api.actor, request_id=api.request_id)
    return _one(api, name)


def _check(api: Access, name: str) -> None:
    if name not in api.runtime.rules:
        raise NotFound("queue", name)


def _one(api: Access, name: str) -> Queue:
    with api.read() as tx:
        return next(Queue.of(state) for state in list_queues(tx, api.runtime.rules) if state.name == name)
