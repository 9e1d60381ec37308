"""Specs of protocols: their schema, checking one, and auditing those that there are."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ratchet.protocols.spec import SCHEMA, spec_problems
from ratchet.protocols.spec.audit import start_audit
from ratchet.runtime import get_job
from ratchet.runtime.operations.jobs import JobAnswer
from ratchet.server import protocol_shapes as shapes
from ratchet.server.fields import MAX_ID
from ratchet.server.problems import documented
from ratchet.server.project_scope import enter
from ratchet.server.service import Api

router = APIRouter(tags=["specs"], responses=documented(401, 403))


class GivenSpec(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    spec: dict[str, JsonValue] = Field(description="as GET /specs/schema describes it")


class Audit(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    project_id: int | None = Field(None, ge=1, le=MAX_ID, description="only protocols of this project")
    protocol_id: int | None = Field(None, ge=1, le=MAX_ID, description="only this protocol")
    backfill: bool = Field(False, description="make specs from files for protocols that have none")
    interval_seconds: float | None = Field(None, gt=0, le=31_536_000, description="audit again, so often")


@router.get("/specs/schema")
def schema() -> dict[str, Any]:
    """The JSON Schema of specs."""
    return dict(SCHEMA)


@router.post("/specs/validate", responses=documented(400, 422))
def validate(given: GivenSpec) -> shapes.CheckedSpec:
    """Everything that is wrong with a spec. Files are not looked for."""
    problems = spec_problems(given.spec)
    return shapes.CheckedSpec(valid=not problems, problems=problems)


@router.post("/specs/audit", responses=documented(400, 404, 422))
def audit(api: Api, wanted: Audit) -> shapes.Accepted:
    """Have specs checked against what is in the repositories. For the operator alone."""
    with api.write() as tx:
        if wanted.project_id is not None:
            enter(api, tx, "project", wanted.project_id)
        if wanted.protocol_id is not None:
            enter(api, tx, "run", wanted.protocol_id)
        job = JobAnswer.of(get_job(tx, start_audit(tx, api.runtime, **wanted.model_dump())))
    return shapes.Accepted(message="the audit is in line", job=job)
