"""The operations on protocols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ratchet.kernel import RunStatus
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import Protocol, get_protocol, list_protocols
from ratchet.operations import Listing, McpTool, Param, Window, line_of, number_of, operation
from ratchet.protocols.views import ProtocolAnswer
from ratchet.runtime.call import Call
from ratchet.runtime.operations.jobs import AcceptedAnswer, JobAnswer, StepAcceptedAnswer

if TYPE_CHECKING:
    from ratchet.ledger import Transaction
    from ratchet.runtime import Runtime

_FINDING = "ratchet.protocols.lookup"
ProtocolNumber = Annotated[
    int,
    number_of(
        "Its number, or its name such as 0007-add-login.", "PROTOCOL", find=f"{_FINDING}:protocol_number"
    ),
]
# The package of projects is not loaded for a list of protocols.
ProjectNumber = Annotated[
    int, number_of("Its number, or its name.", "PROJECT", find=f"{_FINDING}:project_number")
]
ProjectFilter = Annotated[
    int | None, number_of("Only of this project.", "PROJECT", "--project", find=f"{_FINDING}:project_number")
]
NewName = Annotated[str, line_of("also the name of its branch and its folder, such as 0007-add-login")]
Base = Annotated[str | None, line_of("the project's, if not given")]
# What only Ratchet chooses, or only a program has.
_CHOSEN = frozenset({"worktree_path", "protocol_root", "template_config", "template_source"})
Unfinished = Annotated[bool, Param("Only those that have not ended.")]


@operation(
    "protocol list",
    "GET /protocols",
    project_too=True,
    tool=McpTool("list_protocols", "List protocols"),
    examples=[
        "ratchet protocol list",
        "ratchet protocol list --project shop --unfinished",
        "ratchet protocol list --json | jq -r '.[].protocol_name'",
    ],
    empty='No such protocols. `ratchet protocol new "WHAT TO CHANGE"` makes one.',
    enveloped=False,
    limit=20,
)
def list_(
    call: Call, window: Window, project_id: ProjectFilter = None, unfinished: Unfinished = False
) -> Listing[ProtocolAnswer]:
    """List protocols, newest first.

    Those of projects whose token was not shown are left out.
    """
    found = listed(call, window, project_id=project_id, unfinished=unfinished)
    return Listing([ProtocolAnswer.of(each, brief=True) for each in found.items], found.next)


def listed(
    call: Call,
    window: Window,
    *,
    project_id: int | None = None,
    unfinished: bool = False,
    status: RunStatus | None = None,
) -> Listing[Protocol]:
    with call.read() as tx:
        found = list_protocols(
            tx,
            project_id=call.project_id or project_id,
            before=window.before,
            limit=window.one_more,
            unfinished=unfinished,
            status=status,
        )
        hidden = call.hidden(tx, (each.project_id for each in found))
    return window.without(found, lambda each: each.project_id in hidden, number="run_id")


@operation(
    "protocol show",
    "GET /protocols/{protocol_id}",
    project_too=True,
    tool=McpTool("get_protocol", "Show a protocol"),
)
def show(call: Call, protocol_id: ProtocolNumber) -> ProtocolAnswer:
    """One protocol: its status and the reason for it, its branch and its pull request."""
    with call.read() as tx:
        return ProtocolAnswer.of(get_protocol(tx, protocol_id))


@operation(
    "protocol start",
    "POST /protocols/{protocol_id}/actions/start",
    project_too=True,
    tool=McpTool("start_protocol", "Start a protocol", outside=True, queues=True),
    done="{it.message}",
)
def start(call: Call, protocol_id: ProtocolNumber) -> AcceptedAnswer:
    """Plan a protocol, or carry out the plan that it has; pending, planned and paused ones can be started.

    Without `automatic` no step begins by itself: a protocol that has its plan is then running, and waits until its next
    step is asked for. So it can be started again when no answer came: nothing is planned or begun twice. The engines
    are looked at first; one that cannot work now is reported, and nothing is started.
    """
    from ratchet.protocols.engine_choice import check_existing

    look_at_engines(call, check_existing, protocol_id)
    return begin(call, protocol_id)


def look_at_engines(call: Call, check: Callable[[Runtime, int], None], number: int) -> None:
    """Look at the engines of a protocol or a step before a worker is given it."""
    from ratchet.engines.preflight import check_for_worker

    check_for_worker(call.runtime, partial(check, call.runtime, number))


def begin(call: Call, protocol_id: int) -> AcceptedAnswer:
    """`start`, where the engines were looked at."""
    from ratchet.protocols.actions import start_protocol

    with call.write() as tx:
        get_protocol(tx, protocol_id)
        job = JobAnswer.at(tx, start_protocol(tx, call.runtime, protocol_id))
        begun = get_protocol(tx, protocol_id)
    if begun.status is RunStatus.PLANNING:
        return AcceptedAnswer("planning is queued", job)
    by_hand = "its steps are started by hand: see run_next_step"
    return AcceptedAnswer("the protocol is queued" if begun.automatic else by_hand, job)


@operation(
    "protocol pause",
    "POST /protocols/{protocol_id}/actions/pause",
    project_too=True,
    tool=McpTool("pause_protocol", "Pause a protocol", repeatable=True),
    examples=["ratchet protocol pause 7", "ratchet protocol pause 0007-add-login --project shop"],
    see=["protocol resume", "protocol cancel"],
    done="Protocol {it.id} is paused",
    then="`ratchet protocol resume {it.id}` resumes it",
)
def pause(call: Call, protocol_id: ProtocolNumber) -> ProtocolAnswer:
    """Pause a protocol; what is recorded stays.

    Its worker is asked to stop. A session that was cut off is held again when it is resumed. Pausing it again changes
    nothing.
    """
    from ratchet.runtime import pause_run

    return _changed(call, protocol_id, pause_run)


@operation(
    "protocol resume",
    "POST /protocols/{protocol_id}/actions/resume",
    project_too=True,
    tool=McpTool("resume_protocol", "Resume a protocol", outside=True, queues=True),
    done="Protocol {it.id} is resumed",
)
def resume(call: Call, protocol_id: ProtocolNumber) -> ProtocolAnswer:
    """Resume a paused or blocked protocol.

    Steps that were blocked are done again; one that has failed is tried again only when that is asked for. The engines
    are looked at first, as when it is started.
    """
    from ratchet.protocols.engine_choice import check_resumed

    look_at_engines(call, check_resumed, protocol_id)
    return begin_again(call, protocol_id)


def begin_again(call: Call, protocol_id: int) -> ProtocolAnswer:
    """`resume`, where the engines were looked at."""
    from ratchet.runtime import resume_run

    return _changed(call, protocol_id, resume_run)


def _changed(
    call: Call, protocol_id: int, change: Callable[[Transaction, Runtime, int], object]
) -> ProtocolAnswer:
    with call.write() as tx:
        get_protocol(tx, protocol_id)
        change(tx, call.runtime, protocol_id)
        return ProtocolAnswer.of(get_protocol(tx, protocol_id))


@operation(
    "protocol cancel",
    "POST /protocols/{protocol_id}/actions/cancel",
    project_too=True,
    tool=McpTool("cancel_protocol", "Cancel a protocol", destructive=True, repeatable=True),
    examples=["ratchet protocol cancel 7", "ratchet protocol cancel 0007-add-login --project shop"],
    see=["protocol pause"],
    done="Protocol {it.id} is cancelled",
)
def cancel(call: Call, protocol_id: ProtocolNumber) -> ProtocolAnswer:
    """Cancel a protocol for good, with every step that has not ended.

    Its branch, its worktree and what is recorded stay. Cancelling it again changes nothing.
    """
    from ratchet.runtime import cancel_run

    return _changed(call, protocol_id, cancel_run)


@operation(
    "protocol run-next",
    "POST /protocols/{protocol_id}/actions/run_next_step",
    project_too=True,
    tool=McpTool("run_next_step", "Run the next step", outside=True, queues=True),
    done="{it.message}",
)
def run_next(call: Call, protocol_id: ProtocolNumber) -> StepAcceptedAnswer:
    """Run the first step of a protocol that waits, is blocked or has failed. Its engine is looked at first."""
    from ratchet.protocols.engine_choice import check_next

    look_at_engines(call, check_next, protocol_id)
    return begin_next(call, protocol_id)


def begin_next(call: Call, protocol_id: int) -> StepAcceptedAnswer:
    """`run_next`, where its engine was looked at."""
    from ratchet.protocols.actions import run_next_step

    with call.write() as tx:
        step, job_id = run_next_step(tx, call.runtime, protocol_id)
        return StepAcceptedAnswer(f"{step.name} is queued", JobAnswer.at(tx, job_id), step.step_id)


@operation(
    "protocol retry",
    "POST /protocols/{protocol_id}/actions/retry_latest",
    project_too=True,
    tool=McpTool("retry_latest_step", "Try the latest step again", outside=True, queues=True),
    done="{it.message}",
)
def retry(call: Call, protocol_id: ProtocolNumber) -> StepAcceptedAnswer:
    """Try the last step of a protocol that failed or is blocked once more. Its engine is looked at first."""
    from ratchet.protocols.engine_choice import check_retried

    look_at_engines(call, check_retried, protocol_id)
    return begin_retry(call, protocol_id)


def begin_retry(call: Call, protocol_id: int) -> StepAcceptedAnswer:
    """`retry`, where its engine was looked at."""
    from ratchet.protocols.actions import retry_latest

    with call.write() as tx:
        step, job_id = retry_latest(tx, call.runtime, protocol_id)
        return StepAcceptedAnswer(f"{step.name} is queued again", JobAnswer.at(tx, job_id), step.step_id)


@operation(
    "protocol open-pr",
    "POST /protocols/{protocol_id}/actions/open_pr",
    project_too=True,
    tool=McpTool("open_pull_request", "Open a pull request", outside=True, queues=True),
    done="{it.message}",
)
def open_pr(call: Call, protocol_id: ProtocolNumber) -> AcceptedAnswer:
    """Push the branch of a protocol and open its pull request, or bring the one that there is up to date."""
    from ratchet.protocols.actions import open_pull_request

    with call.write() as tx:
        job = JobAnswer.at(tx, open_pull_request(tx, call.runtime, protocol_id))
        return AcceptedAnswer("the pull request is queued", job)


@operation(
    "protocol create",
    "POST /projects/{project_id}/protocols",
    project_too=True,
    tool=McpTool("create_protocol", "Create a protocol", without=_CHOSEN),
    location="/protocols/{it.id}",
)
def create(
    call: Call,
    project_id: ProjectNumber,
    protocol_name: NewName,
    status: Annotated[
        Literal["pending", "planned"], Param("`planned` if someone else has planned it and adds the steps")
    ] = "pending",
    base_branch: Base = None,
    description: Annotated[str | None, Param("what is wanted; the planner reads it", longest=100_000)] = None,
    automatic: Annotated[
        bool | None, Param("whether ready steps run by themselves; as the settings say, if null")
    ] = None,
    simulated: Annotated[bool, Param("allow recorded sessions; marks the protocol")] = False,
    template_config: Annotated[dict[str, Any] | None, Param(engine=True)] = None,
    template_source: dict[str, Any] | None = None,
    worktree_path: Annotated[None, Param("only null: Ratchet chooses it")] = None,  # noqa: ARG001
    protocol_root: Annotated[None, Param("only null: it is `.protocols/NAME` on the branch")] = None,  # noqa: ARG001
) -> ProtocolAnswer:
    """Create a protocol for a project: say in `description` what is wanted. Nothing happens before it is started.

    409 when its name is taken.
    """
    from ratchet.protocols.actions import create_protocol

    with call.write() as tx:
        run_id = create_protocol(
            tx,
            call.runtime,
            project_id,
            protocol_name,
            planned=status == "planned",
            base_branch=base_branch,
            description=description,
            automatic=automatic,
            simulated=simulated,
            template_config=template_config,
            template_source=template_source,
        )
        return ProtocolAnswer.of(get_protocol(tx, run_id))


@operation("protocol of-project", "GET /projects/{project_id}/protocols", project_too=True, enveloped=False)
def of_project(call: Call, window: Window, project_id: ProjectNumber) -> Listing[ProtocolAnswer]:
    """List the protocols of a project, newest first."""
    with call.read() as tx:
        get_project(tx, project_id)
        found = window.cut(
            list_protocols(tx, project_id=project_id, before=window.before, limit=window.one_more),
            number="run_id",
        )
    return Listing([ProtocolAnswer.of(each, brief=True) for each in found.items], found.next)


@dataclass(frozen=True, slots=True)
class ImportedAnswer:
    """`protocol_run` is empty while the import is queued; the result of `job` names it then."""

    message: str
    protocol_run: ProtocolAnswer | None
    job: JobAnswer | None


@operation("protocol import-codemachine", "POST /projects/{project_id}/codemachine/import", project_too=True)
def import_codemachine(
    call: Call,
    project_id: ProjectNumber,
    protocol_name: NewName,
    workspace_path: Annotated[
        str,
        Param(
            "of the workspace, from the clone on; the operator may name any place of this machine",
            shortest=1,
            longest=4096,
            place=True,
        ),
    ],
    base_branch: Base = None,
    description: Annotated[str | None, Param(longest=100_000)] = None,
    workflow: Annotated[str | None, line_of("which of its workflows, if it has several")] = None,
    track: Annotated[str | None, line_of()] = None,
    conditions: Annotated[list[str] | None, line_of()] = None,
    enqueue: Annotated[bool, Param("have a worker do it")] = False,
) -> ImportedAnswer:
    """Make a planned protocol of a CodeMachine workspace, or nothing at all: 400 says what is wrong with it."""
    from ratchet.protocols.codemachine import enqueue_import, import_workspace

    given: dict[str, Any] = {
        "protocol_name": protocol_name,
        "workspace_path": workspace_path,
        "base_branch": base_branch,
        "description": description,
        "workflow": workflow,
        "track": track,
        "conditions": conditions,
        "inside": call.project_id is not None,
    }
    if enqueue:
        with call.write() as tx:
            job = JobAnswer.at(tx, enqueue_import(tx, call.runtime, project_id, **given))
        return ImportedAnswer("the import is queued", None, job)
    run_id = import_workspace(call.runtime, project_id, **given, actor=call.actor, request_id=call.request_id)
    return ImportedAnswer("imported", show(call, run_id), None)


PROTOCOL_OPERATIONS = (
    list_,
    show,
    start,
    pause,
    resume,
    cancel,
    run_next,
    retry,
    open_pr,
    create,
    of_project,
    import_codemachine,
)
