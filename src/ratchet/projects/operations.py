"""The operations on projects, on the branches of their remotes, and on what is asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from ratchet.kernel import NotFound
from ratchet.ledger.projects import DEFAULT_BRANCH, Project, get_project, list_projects, names_by_project
from ratchet.ledger.questions import Clarification, find_clarification, list_clarifications
from ratchet.operations import (
    Listing,
    McpTool,
    OrderWindow,
    Param,
    Window,
    described,
    filled,
    line_of,
    number_of,
    operation,
)
from ratchet.projects.stages import OnboardingAnswer, SetupAnswer, onboarding_view
from ratchet.runtime.call import Call
from ratchet.runtime.operations.jobs import AcceptedAnswer, JobAnswer

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

ProjectNumber = Annotated[
    int,
    number_of("Its number, or its name.", "PROJECT", find="ratchet.protocols.lookup:project_number"),
]
CiFiles = Annotated[bool, Param("write CI files where the repository lacks them", query=True)]
Key = Annotated[str, Param("The key of a question.", metavar="KEY", longest=200)]
Open = Annotated[bool, Param("only those without an answer", flag="--open")]
Given = Annotated[Any, Param("one of its options, if it has any")]
AnsweredBy = Annotated[str | None, line_of("who answers, for the record")]
WITHOUT_PERSON = frozenset({"answered_by"})
_ADDRESS = {"shortest": 1, "longest": 2000}
_MODELS = "models for planning, decompose, exec, qa and discovery"
_SECRETS = "api_token, webhook_secret, git_token and forge_token; they are kept encrypted and never shown"


@dataclass(frozen=True, slots=True)
class ProjectAnswer:
    id: int
    name: str = field(metadata={"examples": ["shop"]})
    git_url: str | None = field(metadata={"examples": ["https://github.com/example/shop.git"]})
    local_path: str | None = field(metadata=described("where it is on the machine that set it up"))
    base_branch: str = field(metadata={"examples": ["main"]})
    ci_provider: str | None = field(metadata={"examples": ["github"]})
    default_models: Any
    facts: Any = field(metadata=described("what was found out about the repository, and what people chose"))
    secret_names: list[str] = field(metadata=described("which secrets it has; they are never shown"))
    archived_at: int | None
    created_at: int
    updated_at: int

    @classmethod
    def all_of(cls, tx: Transaction, projects: Sequence[Project]) -> list[Self]:
        names = names_by_project(tx, [project.id for project in projects])
        return [filled(cls, project, secret_names=names[project.id]) for project in projects]

    @classmethod
    def at(cls, tx: Transaction, project_id: int) -> Self:
        return cls.all_of(tx, [get_project(tx, project_id)])[0]


@dataclass(frozen=True, slots=True)
class BranchesAnswer:
    branches: list[str] = field(metadata={"examples": [["main", "0007-add-login"]]})


@dataclass(frozen=True, slots=True)
class DeletedBranchAnswer:
    branch: str
    deleted: Literal[True] = True


@dataclass(frozen=True, slots=True)
class ClarificationAnswer:
    """A question to people. While it is `blocking` and open, what it `applies_to` waits."""

    id: int
    project_id: int
    protocol_run_id: int | None
    step_run_id: int | None
    key: str
    question: str
    options: Any
    recommended: Any
    applies_to: str
    blocking: bool
    status: Literal["open", "answered"]
    answer: Any
    answered_by: str | None
    answered_at: int | None
    created_at: int

    @classmethod
    def of(cls, asked: Clarification) -> Self:
        return filled(
            cls,
            asked,
            protocol_run_id=asked.run_id,
            step_run_id=asked.step_id,
            status="open" if asked.open else "answered",
        )


@operation(
    "project list",
    "GET /projects",
    project_too=True,
    tool=McpTool("list_projects", "List projects"),
    examples=["ratchet project list", "ratchet project list --archived --json"],
    empty="No projects yet. `ratchet project add` makes one of the repository here, or of an address.",
    enveloped=False,
)
def list_(
    call: Call, window: Window, archived: Annotated[bool, Param("Archived ones, too.")] = False
) -> Listing[ProjectAnswer]:
    """List projects, newest first.

    Its number or its name can be given wherever PROJECT is asked for. With the token of a project, that project
    alone is listed.
    """
    with call.read() as tx:
        if call.project_id is not None:
            return Listing([ProjectAnswer.at(tx, call.project_id)])
        found = list_projects(tx, before=window.before, limit=window.one_more, archived=archived)
        page = window.cut(found)
        return Listing(ProjectAnswer.all_of(tx, page.items), page.next)


@operation(
    "project register",
    "POST /projects",
    tool=McpTool(
        "register_project", "Register a project", without=frozenset({"secrets"}), outside=True, queues=True
    ),
    done="{it.name} is registered; its onboarding is queued",
    location="/projects/{it.id}",
)
def register(
    call: Call,
    name: Annotated[str, line_of()],
    git_url: Annotated[str | None, Param("where to clone it from", **_ADDRESS)] = None,
    local_path: Annotated[
        str | None, Param("a repository on this machine, worked on where it is", **_ADDRESS)
    ] = None,
    base_branch: Annotated[str, line_of()] = DEFAULT_BRANCH,
    ci_provider: Annotated[str | None, line_of("github or gitlab")] = None,
    default_models: Annotated[dict[str, str] | None, Param(_MODELS)] = None,
    secrets: Annotated[dict[str, str | None] | None, Param(_SECRETS)] = None,
    ci_files: Annotated[bool, Param("write CI files where the repository lacks them")] = False,
) -> ProjectAnswer:
    """Register a repository, from a git address or a directory of the server's machine; its onboarding is then queued.

    409 when the name is taken.
    """
    from ratchet.projects.registration import register_project

    with call.write() as tx:
        project_id = register_project(
            tx,
            call.runtime,
            name=name,
            git_url=git_url,
            local_path=local_path,
            base_branch=base_branch,
            ci_provider=ci_provider,
            default_models=default_models,
            secrets=secrets,
            ci_files=ci_files,
        )
        return ProjectAnswer.at(tx, project_id)


@operation(
    "project show",
    "GET /projects/{project_id}",
    project_too=True,
    tool=McpTool("get_project", "Show a project"),
    examples=["ratchet project show shop", "ratchet project show 3 --json | jq .facts"],
    see=["project questions", "project onboard"],
)
def show(call: Call, project_id: ProjectNumber) -> ProjectAnswer:
    """Show one project: where it is, its checks, and the progress of its onboarding."""
    with call.read() as tx:
        return ProjectAnswer.at(tx, project_id)


@operation("project change", "PATCH /projects/{project_id}")
def change(
    call: Call,
    project_id: ProjectNumber,
    name: Annotated[str | None, line_of()] = None,
    git_url: Annotated[str | None, Param(**_ADDRESS)] = None,
    base_branch: Annotated[str | None, line_of()] = None,
    ci_provider: Annotated[str | None, line_of("null removes it")] = "",
    default_models: Annotated[dict[str, str] | None, Param(_MODELS)] = None,
    archived: Annotated[bool | None, Param("true puts it away, false takes it out again")] = None,
) -> ProjectAnswer:
    """Change what is given; what is left out stays. For the operator alone."""
    given = {
        "name": name,
        "git_url": git_url,
        "base_branch": base_branch,
        "default_models": default_models,
        "archived": archived,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    return _changed(call, project_id, changes | ({} if ci_provider == "" else {"ci_provider": ci_provider}))


@operation("project archive", "DELETE /projects/{project_id}", status=204)
def archive(call: Call, project_id: ProjectNumber) -> ProjectAnswer:
    """Archive a project: nothing of it is lost, and it takes no new protocols. For the operator alone."""
    return _changed(call, project_id, {"archived": True})


def _changed(call: Call, project_id: int, changes: dict[str, Any]) -> ProjectAnswer:
    from ratchet.projects.registration import update_project

    with call.write() as tx:
        update_project(tx, call.runtime, project_id, changes)
        return ProjectAnswer.at(tx, project_id)


@operation("project settings", "GET /projects/{project_id}/setup")
def setup(call: Call, project_id: ProjectNumber) -> SetupAnswer:
    """How the project is set up and checked, and whether its environment is made on this machine."""
    from ratchet.projects.setup import setup_view

    with call.read() as tx:
        found = get_project(tx, project_id)
    return setup_view(call.runtime, found)


@operation("project set-up", "PUT /projects/{project_id}/setup")
def change_setup(
    call: Call,
    project_id: ProjectNumber,
    commands: Annotated[
        list[str] | None,
        Param(
            "run in this order, each at the top of a fresh checkout; null returns to what was found",
            shortest=1,
            longest=4000,
        ),
    ],
) -> SetupAnswer:
    """Set the project up by other commands. The environment is made again when it is next needed."""
    from ratchet.projects.setup import settle_setup, use_found

    with call.write() as tx:
        get_project(tx, project_id)
        if commands is None:
            use_found(tx, project_id, "setup")
        else:
            settle_setup(tx, project_id, commands)
    return setup(call, project_id)


@dataclass(frozen=True, slots=True)
class GivenCheck:
    name: Annotated[str, line_of()]
    command: Annotated[str, Param(shortest=1, longest=4000)]
    kind: Annotated[str | None, line_of("test, lint, types, build, format or security")] = None


@operation("project check-with", "PUT /projects/{project_id}/checks")
def change_checks(
    call: Call,
    project_id: ProjectNumber,
    checks: Annotated[list[GivenCheck] | None, Param("null returns to what was found")],
) -> SetupAnswer:
    """Have other checks decide about changes. For the operator alone."""
    from ratchet.projects.setup import settle_checks, use_found

    with call.write() as tx:
        get_project(tx, project_id)
        if checks is None:
            use_found(tx, project_id, "checks")
        else:
            settle_checks(
                tx,
                project_id,
                [{key: getattr(each, key) for key in ("name", "command", "kind")} for each in checks],
            )
    return setup(call, project_id)


@operation(
    "project onboarding",
    "GET /projects/{project_id}/onboarding",
    project_too=True,
    tool=McpTool("get_onboarding", "Show an onboarding"),
)
def onboarding(call: Call, project_id: ProjectNumber) -> OnboardingAnswer:
    """Show the progress of the onboarding of a project, stage by stage, and its events."""
    with call.read() as tx:
        return onboarding_view(tx, get_project(tx, project_id))


@operation(
    "project start-onboarding",
    "POST /projects/{project_id}/onboarding/actions/start",
    project_too=True,
    tool=McpTool("start_onboarding", "Start an onboarding", outside=True, queues=True),
    done="{it.message}",
)
def start_onboarding(call: Call, project_id: ProjectNumber, ci_files: CiFiles = False) -> AcceptedAnswer:
    """Resume an onboarding that is blocked, or begin again after one that has ended. 409 while it runs."""
    from ratchet.projects.registration import set_up_again
    from ratchet.runtime.job import last_carrier

    with call.write() as tx:
        carrier = last_carrier(tx, set_up_again(tx, call.runtime, project_id, ci_files=ci_files))
        return AcceptedAnswer(
            "onboarding is queued", None if carrier is None else JobAnswer.at(tx, carrier.id)
        )


@dataclass(frozen=True, slots=True)
class SecretsAnswer:
    secret_names: list[str] = field(metadata={"examples": [["api_token", "webhook_secret"]]})


@operation("project keep-secrets", "PUT /projects/{project_id}/secrets")
def keep_secrets(
    call: Call,
    project_id: ProjectNumber,
    secrets: Annotated[dict[str, str | None], Param("each by its name; null removes it", whole=True)],
) -> SecretsAnswer:
    """Set secrets by name, or remove those that are null; others stay. Answers with the names alone.

    For the operator alone. An `api_token` is needed for this project's things from then on.
    """
    from ratchet.projects.secrets import put_secrets, secret_names

    with call.write() as tx:
        get_project(tx, project_id)
        put_secrets(tx, call.runtime, project_id, secrets)
        return SecretsAnswer(secret_names(tx, project_id))


@operation(
    "project branches",
    "GET /projects/{project_id}/branches",
    project_too=True,
)
def branches(call: Call, project_id: ProjectNumber) -> BranchesAnswer:
    """List the branches that the remote of a project has now.

    409 when the repository is not on this machine, 502 when the remote does not answer.
    """
    from ratchet.projects.clone import list_branches

    return BranchesAnswer(
        list_branches(call.runtime, project_id, actor=call.actor, request_id=call.request_id)
    )


@operation(
    "project remove-branch",
    "POST /projects/{project_id}/branches/{branch:path}/delete",
    project_too=True,
)
def delete_branch(
    call: Call,
    project_id: ProjectNumber,
    branch: Annotated[str, Param("Its name, without `origin/`.", metavar="BRANCH", longest=500)],
    confirm: Annotated[bool, Param("must be true: it cannot be undone")] = False,
) -> DeletedBranchAnswer:
    """Delete a branch of the remote: never the base branch, nor that of a protocol that has not ended.

    400 without `confirm`.
    """
    from ratchet.projects import clone

    clone.delete_branch(
        call.runtime, project_id, branch, confirm=confirm, actor=call.actor, request_id=call.request_id
    )
    return DeletedBranchAnswer(branch)


@operation(
    "project clarifications",
    "GET /projects/{project_id}/clarifications",
    project_too=True,
    tool=McpTool("list_project_clarifications", "List the questions of a project"),
    enveloped=False,
)
def clarifications(
    call: Call, window: OrderWindow, project_id: ProjectNumber, open: Open = False
) -> Listing[ClarificationAnswer]:
    """List the questions to people about a project and its protocols, in the order in which they were asked."""
    with call.read() as tx:
        get_project(tx, project_id)
        return asked_in(tx, window, project_id=project_id, open_only=open)


def asked_in(tx: Transaction, window: OrderWindow, **where: Any) -> Listing[ClarificationAnswer]:
    """A part of the questions about a project or a run."""
    found = window.cut(list_clarifications(tx, after=max(window.after, 0), limit=window.one_more, **where))
    return Listing([ClarificationAnswer.of(each) for each in found.items], found.next)


@operation("project clarification", "GET /projects/{project_id}/clarifications/{key:path}", project_too=True)
def clarification(call: Call, project_id: ProjectNumber, key: Key) -> ClarificationAnswer:
    """Show a question about the project as a whole."""
    with call.read() as tx:
        return ClarificationAnswer.of(_asked(tx, project_id, key))


@operation(
    "project answer-clarification",
    "POST /projects/{project_id}/clarifications/{key:path}",
    project_too=True,
    tool=McpTool(
        "answer_project_clarification",
        "Answer a question about a project",
        without=WITHOUT_PERSON,
        queues=True,
    ),
)
def answer_clarification(
    call: Call, project_id: ProjectNumber, key: Key, answer: Given, answered_by: AnsweredBy = None
) -> ClarificationAnswer:
    """Answer a question; what waited for this and for nothing else is resumed. An answer cannot be changed."""
    with call.write() as tx:
        return give_answer(call, tx, _asked(tx, project_id, key), answer, answered_by)


def give_answer(
    call: Call, tx: Transaction, asked: Clarification, answer: Any, by: str | None
) -> ClarificationAnswer:
    from ratchet.projects import clarifications as questions

    return ClarificationAnswer.of(questions.answer(tx, call.runtime, asked.id, answer, by=by or call.actor))


def _asked(tx: Transaction, project_id: int, key: str) -> Clarification:
    get_project(tx, project_id)
    return found_question(find_clarification(tx, project_id, key), key)


def found_question(found: Clarification | None, key: str) -> Clarification:
    if found is None:
        raise NotFound("clarification", repr(key))
    return found


OPERATIONS = (
    register,
    list_,
    show,
    change,
    archive,
    setup,
    change_setup,
    change_checks,
    onboarding,
    start_onboarding,
    keep_secrets,
    branches,
    delete_branch,
    clarifications,
    clarification,
    answer_clarification,
)
