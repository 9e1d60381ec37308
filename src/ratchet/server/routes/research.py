"""Research runs: starting them, looking where they stand, pausing, resuming and stopping them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from ratchet.engines.preflight import check_for_worker
from ratchet.kernel import RatchetError
from ratchet.ledger import Run
from ratchet.ledger.research import find_research
from ratchet.ledger.runs import get_run
from ratchet.research.operations import OPERATIONS
from ratchet.research.start import LARGEST_SEED, ResearchRequest, check_research, start_research
from ratchet.research.tasks import find_installed, installed_task, task_names
from ratchet.research.views import status
from ratchet.server import research_shapes as shapes
from ratchet.server.fields import EngineName, Page, Text
from ratchet.server.operation import add_operations
from ratchet.server.service import Api
from ratchet.server.shapes import Run as RunShape

router = APIRouter(tags=["research"])
RunName = Annotated[
    str, Path(max_length=200, description="its number, or its name: the newest run of that name")
]


Hours = Annotated[float, Field(gt=0, le=1_000_000)]


class NewRun(BaseModel):
    """What is left out is what the task says. Something must stop the run: here, or in the task."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    task: Text = Field(
        description="the name of an installed task, or NAME:VARIANT; never a path",
        examples=["circle_packing"],
    )
    variant: Text | None = None
    name: Text | None = Field(None, description="what to call the run; the task's name if not given")
    engine: EngineName | None = Field(
        None, description="who proposes, for every specialist", examples=["search"]
    )
    model: Text | None = None
    specialists: list[Text] = Field([], max_length=100, description="only these of the task")
    keep_policy: Text | None = Field(None, description="confident or strict")
    lineage: bool = Field(True, description="whether specialists are told of earlier trials")
    parallel: int | None = Field(None, ge=1, le=1000, description="sessions at once")
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="where a search begins")
    trials: int | None = Field(None, ge=1, le=1_000_000, description="stop after so many")
    hours: Hours | None = Field(None, description="stop after so many hours of work")
    hours_without_keep: Hours | None = Field(None, description="stop when nothing was kept for so long")
    tokens: int | None = Field(None, ge=1, le=10**15, description="a strict budget of the run")
    cost_usd: float | None = Field(None, gt=0, le=1_000_000_000, description="a strict budget of the run")
    baseline_score: float | None = Field(None, description="taken instead of measuring the recipe as it is")
    simulated: bool = Field(False, description="allow recorded sessions; marks the run")

    def wanted(self) -> ResearchRequest:
        return ResearchRequest(**{**self.model_dump(), "specialists": tuple(self.specialists)})


@router.post("/research", status_code=201, response_model=RunShape)
def start(api: Api, new: NewRun, response: Response) -> Run:
    """Start a run; a worker carries it. 404 when no such task is installed, 422 for what can never work, 424 when an
    engine of it cannot work now.

    Only installed tasks can be named. A path would let whoever holds the token have any directory of the server read,
    and the code in it run; tasks in folders are for the command line.
    """
    wanted = new.wanted()
    check_for_worker(api.runtime, partial(check_research, api.runtime, wanted, find=find_installed))
    run_id = start_research(
        api.runtime, wanted, actor=api.actor, request_id=api.request_id, find=find_installed
    )
    response.headers["Location"] = f"/research/{run_id}"
    with api.read() as tx:
        return get_run(tx, run_id)


@router.get("/research/tasks")
def tasks() -> Page[shapes.Task]:
    """The installed tasks by name, all at once."""
    return Page(items=[_task(name) for name in task_names()], next=None)


@router.get("/research/{run}", response_model=shapes.Standing)
def standing(api: Api, run: RunName) -> dict[str, Any]:
    """Where a run stands: the baseline, the best, what ended how, what is in flight, what it has cost."""
    with api.read() as tx:
        return status(tx, find_research(tx, run))


def _task(name: str) -> shapes.Task:
    try:
        task = installed_task(name)
    except RatchetError as error:
        # The others can still be used.
        return shapes.Task(name=name, problem=str(error))
    return shapes.Task(
        name=name,
        description=task.description,
        score_field=task.score_field,
        direction=task.direction,
        specialists=tuple(each.name for each in task.roster),
        variants=task.variants,
        known_best=task.known_best,
        plain_baseline=task.plain_baseline,
    )


add_operations(router, OPERATIONS)
