"""The branches of a project's remote."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from ratchet.projects.clone import delete_branch, list_branches
from ratchet.server import protocol_shapes as shapes
from ratchet.server.fields import Id
from ratchet.server.problems import documented
from ratchet.server.service import Api

router = APIRouter(tags=["projects"], responses=documented(401, 403, 404, 409, 422, 502))
BranchName = Annotated[str, Path(max_length=500)]


class Deletion(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    confirm: bool = Field(False, description="must be true: it cannot be undone", examples=[True])


@router.get("/projects/{project_id}/branches")
def branches(api: Api, project_id: Id) -> shapes.Branches:
    """What the remote has now. 409 when the repository is not on this machine, 502 when the remote does not answer."""
    names = list_branches(api.runtime, project_id, actor=api.actor, request_id=api.request_id)
    return shapes.Branches(branches=names)


@router.post("/projects/{project_id}/branches/{branch:path}/delete", responses=documented(400))
def delete(
    api: Api, project_id: Id, branch: BranchName, wanted: Deletion | None = None
) -> shapes.DeletedBranch:
    """Delete a branch of the remote: never the base branch, nor that of a protocol that has not ended.

    400 without `confirm`.
    """
    confirmed = wanted is not None and wanted.confirm
    delete_branch(
        api.runtime, project_id, branch, confirm=confirmed, actor=api.actor, request_id=api.request_id
    )
    return shapes.DeletedBranch(branch=branch)
