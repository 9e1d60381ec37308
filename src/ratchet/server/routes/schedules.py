"""Schedules: jobs, workflows and batches of optimisation that come again."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue, model_validator

from ratchet import runtime
from ratchet.ledger import Transaction
from ratchet.runtime import Missed, Timetable, get_schedule, list_schedules, read_when, remove_schedule
from ratchet.runtime.job import DEFAULT_QUEUE
from ratchet.runtime.schedules import chosen_priority, fire_now, set_schedule_paused
from ratchet.server.fields import Json, Moment, Shape
from ratchet.server.paging import Page
from ratchet.server.service import Access, Api
from ratchet.workflows.scheduling import Overlap, schedule_optimisation, schedule_workflow

router = APIRouter(tags=["schedules"])
_SHOWN = 3

When = Annotated[
    str,
    Field(
        validation_alias=AliasChoices("when", "cron"),
        description="plain English, or cron of five fields, or six with seconds first",
        examples=["every weekday at 9am", "0 3 * * *"],
    ),
]
Zone = Annotated[str, Field(examples=["Europe/Berlin"])]
Count = Annotated[int, Query(ge=1, le=1000)]


class Batch(BaseModel):
    """A batch of optimisation. It always runs in the background."""

    model_config = ConfigDict(extra="forbid")

    budget_usd: float | None = Field(None, gt=0, allow_inf_nan=False)
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    engine: str | None = None
    most: int | None = Field(None, ge=1, description="how many tools it takes on")


# What each thing that can be scheduled takes besides the times.
_OPTIONS = {
    "kind": ("payload", "queue", "key", "priority", "background"),
    "workflow": ("inputs", "overlap", "cached", "priority", "background"),
    "optimise": (),
}


class NewSchedule(BaseModel):
    """Exactly one of `kind`, `workflow` and `optimise` says what comes."""

    model_config = ConfigDict(extra="forbid")

    name: str
    when: When
    kind: str | None = Field(None, description="a kind of job")
    workflow: str | None = Field(None, description="a saved workflow, run as it is saved at each time")
    optimise: Batch | None = None
    payload: JsonValue = Field(None, description="what a job of a kind is given")
    inputs: dict[str, JsonValue] = Field(default_factory=dict, description="what the workflow is given")
    overlap: Overlap = Field(Overlap.SKIP, description="of a workflow whose run before has not ended")
    cached: bool = Field(
        True, description="whether steps of the workflow whose result is known are not run again"
    )
    timezone: Zone = "UTC"
    queue: str = DEFAULT_QUEUE
    key: str | None = Field(None, description="jobs with the same key never overlap")
    missed: Missed = Field(Missed.ONCE, description="times that passed while no worker was there")
    priority: int | None = Field(None, ge=0, le=9, description="0 is done first, 9 last; 5 if not given")
    background: bool = Field(False, description="give way to all other work; the same as priority 9")

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        things = [each for each in _OPTIONS if getattr(self, each) is not None]
        if len(things) != 1:
            raise ValueError("exactly one of kind, workflow and optimise must be given")
        foreign = {each for options in _OPTIONS.values() for each in options} - {*_OPTIONS[things[0]]}
        idle = sorted(foreign & self.model_fields_set)
        if idle:
            raise ValueError(f"{', '.join(idle)} has no meaning with {things[0]}")
        return self


class Reading(BaseModel):
    model_config = ConfigDict(extra="forbid")

    when: When
    timezone: Zone = "UTC"
    count: int = Field(_SHOWN, ge=1, le=1000)


class Times(Shape):
    cron: str
    meaning: str = Field(description="the cron expression in words")
    timezone: str
    next: list[Moment]


class Started(Shape):
    job_id: int


class Schedule(Shape):
    name: str
    cron: str
    words: str | None = Field(description="as a person said it, when not as cron")
    meaning: str = Field(description="the cron expression in words")
    timezone: str
    kind: str
    queue: str
    key: str | None
    payload: Json
    priority: int
    background: bool
    missed: Missed
    paused: bool
    created_at: Moment
    last_fired_at: Moment | None
    next_at: Moment | None = Field(description="when it fires next; null while it is paused")
    next: list[Moment] = Field(description="its next three times")

    @classmethod
    def of(cls, schedule: runtime.Schedule) -> Schedule:
        upcoming = schedule.upcoming(time.time(), _SHOWN)
        own = {name: getattr(schedule, name) for name in cls.model_fields if name not in ("next_at", "next")}
        return cls.model_validate({**own, "next": upcoming, "next_at": upcoming[0] if upcoming else None})


@router.get("/schedules")
def schedules(api: Api) -> Page[Schedule]:
    """By name, all at once."""
    with api.read() as tx:
        return Page(items=[Schedule.of(each) for each in list_schedules(tx)], next=None)


@router.post("/schedules")
def put(api: Api, new: NewSchedule) -> Schedule:
    """Make a schedule, or replace the one of that name."""
    if new.workflow is not None:
        schedule_workflow(
            api.runtime,
            new.name,
            new.when,
            new.workflow,
            new.inputs,
            timezone=new.timezone,
            missed=new.missed,
            priority=chosen_priority(new.priority, new.background),
            overlap=new.overlap,
            cached=new.cached,
            actor=api.actor,
            request_id=api.request_id,
        )
    elif new.optimise is not None:
        schedule_optimisation(
            api.runtime,
            new.name,
            new.when,
            **new.optimise.model_dump(),
            timezone=new.timezone,
            missed=new.missed,
            actor=api.actor,
            request_id=api.request_id,
        )
    else:
        _put_jobs(api, new, new.kind or "")
    with api.read() as tx:
        return _one(tx, new.name)


@router.post("/schedules/read")
def read(reading: Reading) -> Times:
    """What a time means and when it comes, without making anything."""
    when = read_when(reading.when)
    table = Timetable(when.cron, reading.timezone)
    return _times(table, when.words, table.upcoming(time.time(), reading.count))


@router.get("/schedules/{name}")
def one(api: Api, name: str) -> Schedule:
    """One schedule with its next times."""
    with api.read() as tx:
        return _one(tx, name)


@router.get("/schedules/{name}/next")
def next_times(api: Api, name: str, count: Count = _SHOWN) -> Times:
    """None while it is paused."""
    with api.read() as tx:
        schedule = get_schedule(tx, name)
    return _times(schedule.timetable, schedule.meaning, schedule.upcoming(time.time(), count))


@router.post("/schedules/{name}/pause")
def pause(api: Api, name: str) -> Schedule:
    """Let a schedule rest; what would come meanwhile is not made up for."""
    return _set_paused(api, name, paused=True)


@router.post("/schedules/{name}/resume")
def resume(api: Api, name: str) -> Schedule:
    """What would have come while it rested is not made up for."""
    return _set_paused(api, name, paused=False)


@router.post("/schedules/{name}/run", status_code=202)
def run_now(api: Api, name: str) -> Started:
    """One job of it at once, although its time has not come; its times stay as they are."""
    with api.write() as tx:
        return Started(job_id=fire_now(tx, api.runtime.jobs, name))


@router.delete("/schedules/{name}", status_code=204)
def remove(api: Api, name: str) -> None:
    """Remove a schedule; jobs that it has made stay."""
    with api.write() as tx:
        remove_schedule(tx, name)


def _put_jobs(api: Access, new: NewSchedule, kind: str) -> None:
    with api.write() as tx:
        api.runtime.put_schedule(
            tx,
            new.name,
            new.when,
            kind,
            new.payload,
            timezone=new.timezone,
            queue=new.queue,
            key=new.key,
            priority=chosen_priority(new.priority, new.background),
            missed=new.missed,
        )


def _set_paused(api: Access, name: str, *, paused: bool) -> Schedule:
    with api.write() as tx:
        set_schedule_paused(tx, name, paused)
        return _one(tx, name)


def _one(tx: Transaction, name: str) -> Schedule:
    return Schedule.of(get_schedule(tx, name))


def _times(table: Timetable, meaning: str, upcoming: list[datetime]) -> Times:
    return Times.model_validate(
        {"cron": table.cron, "meaning": meaning, "timezone": table.timezone, "next": upcoming}
    )
