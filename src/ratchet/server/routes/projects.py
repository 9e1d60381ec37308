"""Projects: registering them, looking at them, changing them, and how their onboarding stands."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from ratchet.ledger.projects import get_project, list_projects
from ratchet.projects.registration import register_project, set_up_again, update_project
from ratchet.projects.secrets import put_secrets, secret_names
from ratchet.projects.setup import settle_checks, settle_setup, setup_view, use_found
from ratchet.projects.stages import onboarding_view
from ratchet.protocols.views import onboarding_record, project_record, project_records
from ratchet.runtime import get_job
from ratchet.runtime.job import last_carrier
from ratchet.runtime.operations.jobs import JobAnswer
from ratchet.server import protocol_shapes as shapes
from ratchet.server.fields import Id, Paging, Text
from ratchet.server.problems import documented
from ratchet.server.service import Api

router = APIRouter(tags=["projects"], responses=documented(401, 403, 422))
Line = Annotated[str, Field(min_length=1, max_length=4000)]
Address = Annotated[str, Field(min_length=1, max_length=2000)]
Secret = Annotated[str | None, Field(max_length=4096, description="null removes it")]
_SECRETS = "api_token, webhook_secret, git_token and forge_token; they are kept encrypted and never shown"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class NewProject(_Body):
    name: Text = Field(examples=["shop"])
    git_url: Address | None = Field(
        None, description="where to clone it from", examples=["https://github.com/example/shop.git"]
    )
    local_path: Address | None = Field(
        None, description="a repository on this machine, worked on where it is"
    )
    base_branch: Text = "main"
    ci_provider: Text | None = Field(None, description="github or gitlab")
    default_models: dict[Text, Text] | None = Field(
        None, description="models for planning, decompose, exec, qa and discovery"
    )
    secrets: dict[Text, Secret] | None = Field(None, description=_SECRETS)
    ci_files: bool = Field(False, description="write CI files where the repository lacks them")


class Changes(_Body):
    """What is left out, or null, stays."""

    name: Text | None = None
    git_url: Address | None = None
    base_branch: Text | None = None
    ci_provider: Text | None = Field(None, description="null takes it away")
    default_models: dict[Text, Text] | None = None
    archived: bool | None = Field(None, description="true puts it away, false takes it out again")

    def given(self) -> dict[str, Any]:
        named = self.model_dump(exclude_unset=True)
        return {key: value for key, value in named.items() if value is not None or key == "ci_provider"}


@router.post("/projects", response_model=shapes.Project, responses=documented(400, 409))
def register(api: Api, new: NewProject, response: Response) -> dict[str, Any]:
    """Register a repository; its onboarding is in line then. 409 when the name is taken."""
    with api.write() as tx:
        project_id = register_project(tx, api.runtime, **new.model_dump())
        found = project_record(tx, get_project(tx, project_id))
    response.headers["Location"] = f"/projects/{project_id}"
    return found


@router.get("/projects", response_model=list[shapes.Project])
def projects(
    api: Api, pager: Paging, archived: Annotated[bool, Query(description="archived ones, too")] = False
) -> list[dict[str, Any]]:
    """Newest first. With a project's token, that project alone."""
    own = api.caller.project_id
    with api.read() as tx:
        if own is not None:
            return project_records(tx, [get_project(tx, own)])
        found = list_projects(tx, before=pager.before, limit=pager.one_more, archived=archived)
        return project_records(tx, pager.cut(found).items)


@router.get("/projects/{project_id}", response_model=shapes.Project, responses=documented(404))
def project(api: Api, project_id: Id) -> dict[str, Any]:
    """One project, with what was found out about it."""
    with api.read() as tx:
        return project_record(tx, get_project(tx, project_id))


@router.patch("/projects/{project_id}", response_model=shapes.Project, responses=documented(400, 404, 409))
def change(api: Api, project_id: Id, changes: Changes) -> dict[str, Any]:
    """Change what is given. For the operator alone."""
    with api.write() as tx:
        update_project(tx, api.runtime, project_id, changes.given())
        return project_record(tx, get_project(tx, project_id))


@router.delete("/projects/{project_id}", status_code=204, responses=documented(404))
def archive(api: Api, project_id: Id) -> None:
    """Put a project away: nothing of it is lost, and it takes no new protocols. For the operator alone."""
    with api.write() as tx:
        update_project(tx, api.runtime, project_id, {"archived": True})


@router.put("/projects/{project_id}/secrets", responses=documented(400, 404))
def keep_secrets(api: Api, project_id: Id, secrets: dict[Text, Secret]) -> shapes.Secrets:
    """Set secrets by name, or remove those that are null; others stay. Answers with the names alone.

    For the operator alone. An `api_token` is needed for this project's things from then on.
    """
    with api.write() as tx:
        get_project(tx, project_id)
        put_secrets(tx, api.runtime, project_id, secrets)
        return shapes.Secrets(secret_names=secret_names(tx, project_id))


class Commands(_Body):
    commands: list[Line] | None = Field(
        description="run in this order, each at the top of a fresh checkout; null goes back to what was found"
    )


class NamedCheck(_Body):
    name: Text = Field(examples=["pytest"])
    command: Line = Field(examples=["python3 -m pytest -q"])
    kind: Text | None = Field(None, description="test, lint, types, build, format or security")


class Checks(_Body):
    checks: list[NamedCheck] | None = Field(description="null goes back to what was found")


@router.get("/projects/{project_id}/setup", response_model=shapes.Setup, responses=documented(404))
def project_setup(api: Api, project_id: Id) -> dict[str, Any]:
    """How the project is set up and checked, and whether its environment is made on this machine."""
    with api.read() as tx:
        found = get_project(tx, project_id)
    return setup_view(api.runtime, found)


@router.put("/projects/{project_id}/setup", response_model=shapes.Setup, responses=documented(400, 404))
def change_setup(api: Api, project_id: Id, given: Commands) -> dict[str, Any]:
    """Set the project up by other commands. The environment is made again when it is next needed."""
    with api.write() as tx:
        get_project(tx, project_id)
        if given.commands is None:
            use_found(tx, project_id, "setup")
        else:
            settle_setup(tx, project_id, given.commands)
        found = get_project(tx, project_id)
    return setup_view(api.runtime, found)


@router.put("/projects/{project_id}/checks", response_model=shapes.Setup, responses=documented(400, 404))
def change_checks(api: Api, project_id: Id, given: Checks) -> dict[str, Any]:
    """Have other checks decide about changes. For the operator alone."""
    with api.write() as tx:
        get_project(tx, project_id)
        if given.checks is None:
            use_found(tx, project_id, "checks")
        else:
            settle_checks(tx, project_id, [each.model_dump(exclude_none=True) for each in given.checks])
        found = get_project(tx, project_id)
    return setup_view(api.runtime, found)


@router.get("/projects/{project_id}/onboarding", response_model=shapes.Onboarding, responses=documented(404))
def onboarding(api: Api, project_id: Id) -> dict[str, Any]:
    """How far the onboarding is, stage by stage, and what it has told."""
    with api.read() as tx:
        return onboarding_record(onboarding_view(tx, get_project(tx, project_id)))


@router.post("/projects/{project_id}/onboarding/actions/start", responses=documented(404, 409))
def start_onboarding(
    api: Api,
    project_id: Id,
    ci_files: Annotated[bool, Query(description="write CI files where the repository lacks them")] = False,
) -> shapes.Accepted:
    """Go on with an onboarding that is blocked, or begin anew after one that has ended. 409 while it runs."""
    with api.write() as tx:
        run_id = set_up_again(tx, api.runtime, project_id, ci_files=ci_files)
        carrier = last_carrier(tx, run_id)
        job = None if carrier is None else JobAnswer.of(get_job(tx, carrier.id))
    return shapes.Accepted(message="onboarding is in line", job=job)
