"""Schedules: jobs that come again."""

from __future__ import annotations

import time
from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet import runtime
from ratchet.kernel import NotFound
from ratchet.ledger import Transaction
from ratchet.runtime import list_schedules, remove_schedule
from ratchet.runtime.job import DEFAULT_QUEUE
from ratchet.runtime.schedules import set_schedule_paused
from ratchet.server.fields import Json, Moment, Shape
from ratchet.server.paging import Page
from ratchet.server.service import Access, Api

router = APIRouter(tags=["schedules"])


class NewSchedule(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    cron: str = Field(description="five fields, or six with seconds first", examples=["0 3 * * *"])
    kind: str = Field(description="the kind of job")
    payload: JsonValue = None
    timezone: str = Field("UTC", examples=["Europe/Berlin"])
    queue: str = DEFAULT_QUEUE
    key: str | None = Field(None, description="jobs with the same key never overlap")


class Schedule(Shape):
    name: str
    cron: str
    timezone: str
    kind: str
    queue: str
    key: str | None
    payload: Json
    paused: bool
    created_at: Moment
    last_fired_at: Moment | None
    next_at: Moment | None = Field(description="when it fires next; null while it is paused")

    @classmethod
    def of(cls, schedule: runtime.Schedule) -> Schedule:
        following = None if schedule.paused else schedule.next_after(time.time())
        return cls.model_validate({**asdict(schedule), "next_at": following})


@router.get("/schedules")
def schedules(api: Api) -> Page[Schedule]:
    """By name, all at once."""
    with api.read() as tx:
        return Page(items=[Schedule.of(each) for each in list_schedules(tx)], next=None)


@router.post("/schedules")
def put(api: Api, new: NewSchedule) -> Schedule:
    """Make a schedule, or replace the one of that name."""
    with api.write() as tx:
        api.runtime.put_schedule(
            tx,
            new.name,
            new.cron,
            new.kind,
            new.payload,
            timezone=new.timezone,
            queue=new.queue,
            key=new.key,
        )
        return _one(tx, new.name)


@router.post("/schedules/{name}/pause")
def pause(api: Api, name: str) -> Schedule:
    return _set_paused(api, name, paused=True)


@router.post("/schedules/{name}/resume")
def resume(api: Api, name: str) -> Schedule:
    return _set_paused(api, name, paused=False)


@router.delete("/schedules/{name}", status_code=204)
def remove(api: Api, name: str) -> None:
    with api.write() as tx:
        remove_schedule(tx, name)
    api.runtime.apply_schedules()


def _set_paused(api: Access, name: str, *, paused: bool) -> Schedule:
    with api.write() as tx:
        set_schedule_paused(tx, name, paused)
        changed = _one(tx, name)
    api.runtime.apply_schedules()
    return changed


def _one(tx: Transaction, name: str) -> Schedule:
    for each in list_schedules(tx):
        if each.name == name:
            return Schedule.of(each)
    raise NotFound("schedule", name)
