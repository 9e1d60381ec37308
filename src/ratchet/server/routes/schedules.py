"""Schedules: jobs, workflows and batches of optimisation that come again."""

from __future__ import annotations

import time
from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, JsonValue, model_validator

from ratchet.runtime import Missed, Timetable, get_schedule, read_when
from ratchet.runtime.job import DEFAULT_QUEUE
from ratchet.runtime.operations.schedules import OPERATIONS, SHOWN, ScheduleAnswer, Times
from ratchet.runtime.schedules import chosen_priority
from ratchet.server.fields import EngineName, no_recording
from ratchet.server.operation import add_operations, shape_of
from ratchet.server.service import Access, Api
from ratchet.workflows.schedules import Overlap, schedule_optimisation, schedule_workflow

router = APIRouter(tags=["schedules"])

When = Annotated[
    str,
    Field(
        validation_alias=AliasChoices("when", "cron"),
        description="plain English, or cron of five fields, or six with seconds first",
        examples=["every weekday at 9am", "0 3 * * *"],
    ),
]
Zone = Annotated[str, Field(examples=["Europe/Berlin"])]


class Batch(BaseModel):
    """A batch of optimisation. It always runs in the background."""

    model_config = ConfigDict(extra="forbid")

    budget_usd: float | None = Field(None, gt=0, allow_inf_nan=False)
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    engine: EngineName | None = None
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
    payload: Annotated[JsonValue, AfterValidator(no_recording)] = Field(
        None, description="what a job of a kind is given"
    )
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
    count: int = Field(SHOWN, ge=1, le=1000)


@router.post("/schedules", response_model=shape_of(ScheduleAnswer))
def put(api: Api, new: NewSchedule) -> ScheduleAnswer:
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
        return ScheduleAnswer.of(get_schedule(tx, new.name))


@router.post("/schedules/read", response_model=shape_of(Times))
def read(reading: Reading) -> Times:
    """What a time means and when it comes, without making anything."""
    when = read_when(reading.when)
    table = Timetable(when.cron, reading.timezone)
    return Times(table.cron, when.words, table.timezone, table.upcoming(time.time(), reading.count))


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


add_operations(router, OPERATIONS)
