"""The operations on protocols and their steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

from ratchet.kernel import RunStatus
from ratchet.ledger.protocols import Protocol, get_protocol, get_protocol_step, list_protocols
from ratchet.operations import Listing, Param, Tool, Window, number_of, operation
from ratchet.protocols.views import ProtocolAnswer, StepAnswer
from ratchet.runtime.call import Call
from ratchet.runtime.operations.approvals import By
from ratchet.runtime.operations.jobs import AcceptedAnswer, JobAnswer, StepAcceptedAnswer

if TYPE_CHECKING:
    from ratchet.runtime import Runtime

_FINDING = "ratchet.protocols.lookup"
ProtocolNumber = Annotated[
    int,
    number_of(
        "Its number, or its name such as 0007-add-login.", "PROTOCOL", find=f"{_FINDING}:protocol_number"
    ),
]
StepNumber = Annotated[
    int,
    number_of(
        "Its number, or PROTOCOL/NN: the protocol and the place in it.",
        "STEP",
        find=f"{_FINDING}:step_number",
    ),
]
ProjectFilter = Annotated[
    int | None, number_of("Only of this project.", "PROJECT", "--project", find=f"{_FINDING}:project_number")
]
Unfinished = Annotated[bool, Param("Only those that have not ended.")]


@operation(
    "protocol list",
    "GET /protocols",
    project_too=True,
    tool=Tool("list_protocols", "List protocols"),
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
    tool=Tool("get_protocol", "Show a protocol"),
)
def show(call: Call, protocol_id: ProtocolNumber) -> ProtocolAnswer:
    """One protocol: its status and the reason for it, its branch and its pull request."""
    with call.read() as tx:
        return ProtocolAnswer.of(get_protocol(tx, protocol_id))


@operation(
    "protocol start",
    "POST /protocols/{protocol_id}/actions/start",
    project_too=True,
    tool=Tool("start_protocol", "Start a protocol", outside=True, queues=True),
    done="{it.message}",
)
def start(call: Call, protocol_id: ProtocolNumber) -> AcceptedAnswer:
    """Plan a protocol, or carry out the plan that it has; pending, planned and paused ones can be started.

    Without `automatic` no step begins by itself: a protocol that has its plan is then running, and waits until its next
    step is asked for. So it can be started again when no answer came: nothing is planned or begun twice. The engines
    are looked at first; one that cannot work now is reported, and nothing is started.
    """
    from ratchet.protocols.engine_choice import check_existing

    _look(call, check_existing, protocol_id)
    return begin(call, protocol_id)


def _look(call: Call, check: Callable[[Runtime, int], None], number: int) -> None:
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
    tool=Tool("pause_protocol", "Pause a protocol", repeatable=True),
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

    with call.write() as tx:
        get_protocol(tx, protocol_id)
        pause_run(tx, call.runtime, protocol_id)
        return ProtocolAnswer.of(get_protocol(tx, protocol_id))


@operation(
    "protocol resume",
    "POST /protocols/{protocol_id}/actions/resume",
    project_too=True,
    tool=Tool("resume_protocol", "Resume a protocol", outside=True, queues=True),
    done="Protocol {it.id} is resumed",
)
def resume(call: Call, protocol_id: ProtocolNumber) -> ProtocolAnswer:
    """Resume a paused or blocked protocol.

    Steps that were blocked are done again; one that has failed is tried again only when that is asked for. The engines
    are looked at first, as when it is started.
    """
    from ratchet.protocols.engine_choice import check_resumed

    _look(call, check_resumed, protocol_id)
    return begin_again(call, protocol_id)


def begin_again(call: Call, protocol_id: int) -> ProtocolAnswer:
    """`resume`, where the engines were looked at."""
    from ratchet.runtime import resume_run

    with call.write() as tx:
        get_protocol(tx, protocol_id)
        resume_run(tx, call.runtime, protocol_id)
        return ProtocolAnswer.of(get_protocol(tx, protocol_id))


@operation(
    "protocol cancel",
    "POST /protocols/{protocol_id}/actions/cancel",
    project_too=True,
    tool=Tool("cancel_protocol", "Cancel a protocol", destructive=True, repeatable=True),
    examples=["ratchet protocol cancel 7", "ratchet protocol cancel 0007-add-login --project shop"],
    see=["protocol pause"],
    done="Protocol {it.id} is cancelled",
)
def cancel(call: Call, protocol_id: ProtocolNumber) -> ProtocolAnswer:
    """Cancel a protocol for good, with every step that has not ended.

    Its branch, its worktree and what is recorded stay. Cancelling it again changes nothing.
    """
    from ratchet.runtime import cancel_run

    with call.write() as tx:
        get_protocol(tx, protocol_id)
        cancel_run(tx, call.runtime, protocol_id)
        return ProtocolAnswer.of(get_protocol(tx, protocol_id))


@operation(
    "protocol run-next",
    "POST /protocols/{protocol_id}/actions/run_next_step",
    project_too=True,
    tool=Tool("run_next_step", "Run the next step", outside=True, queues=True),
    done="{it.message}",
)
def run_next(call: Call, protocol_id: ProtocolNumber) -> StepAcceptedAnswer:
    """Run the first step of a protocol that waits, is blocked or has failed. Its engine is looked at first."""
    from ratchet.protocols.engine_choice import check_next

    _look(call, check_next, protocol_id)
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
    tool=Tool("retry_latest_step", "Try the latest step again", outside=True, queues=True),
    done="{it.message}",
)
def retry(call: Call, protocol_id: ProtocolNumber) -> StepAcceptedAnswer:
    """Try the last step of a protocol that failed or is blocked once more. Its engine is looked at first."""
    from ratchet.protocols.engine_choice import check_retried

    _look(call, check_retried, protocol_id)
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
    tool=Tool("open_pull_request", "Open a pull request", outside=True, queues=True),
    done="{it.message}",
)
def open_pr(call: Call, protocol_id: ProtocolNumber) -> AcceptedAnswer:
    """Push the branch of a protocol and open its pull request, or bring the one that there is up to date."""
    from ratchet.protocols.actions import open_pull_request

    with call.write() as tx:
        job = JobAnswer.at(tx, open_pull_request(tx, call.runtime, protocol_id))
        return AcceptedAnswer("the pull request is queued", job)


@operation(
    "step run",
    "POST /steps/{step_id}/actions/run",
    project_too=True,
    tool=Tool("run_step", "Run a step", outside=True, queues=True),
    done="{it.message}",
)
def run_step(call: Call, step_id: StepNumber) -> StepAcceptedAnswer:
    """Run a step that is pending, blocked or failed. Of many who ask at once, one succeeds.

    Its engine is looked at first; if it cannot work now, nothing is begun.
    """
    from ratchet.protocols.engine_choice import check_step

    _look(call, check_step, step_id)
    return begin_step(call, step_id)


def begin_step(call: Call, step_id: int) -> StepAcceptedAnswer:
    """`run_step`, where its engine was looked at."""
    from ratchet.protocols import actions

    with call.write() as tx:
        job = JobAnswer.at(tx, actions.run_step(tx, call.runtime, step_id))
        return StepAcceptedAnswer(f"{get_protocol_step(tx, step_id).name} is queued", job, step_id)


@operation(
    "step qa",
    "POST /steps/{step_id}/actions/run_qa",
    project_too=True,
    tool=Tool("review_step", "Review a step", outside=True, queues=True),
    done="{it.message}",
)
def review_step(call: Call, step_id: StepNumber) -> StepAcceptedAnswer:
    """Have the newest commit of a step judged once more, without a new session of its author."""
    from ratchet.protocols.actions import run_qa

    with call.write() as tx:
        job = JobAnswer.at(tx, run_qa(tx, call.runtime, step_id))
        return StepAcceptedAnswer(
            f"a review of {get_protocol_step(tx, step_id).name} is queued", job, step_id
        )


@operation(
    "step approve",
    "POST /steps/{step_id}/actions/approve",
    project_too=True,
    tool=Tool("approve_step", "Approve a step", without=frozenset({"by"}), destructive=True),
    done="{it.step_name} is {it.status}",
)
def approve_step(call: Call, step_id: StepNumber, by: By = None) -> StepAnswer:
    """Complete a step in the place of its judges, with the newest commit that its author made.

    This cannot be taken back.
    """
    from ratchet.protocols import actions

    with call.write() as tx:
        actions.approve_step(tx, call.runtime, step_id, by=by or call.person)
        return StepAnswer.of(get_protocol_step(tx, step_id))


PROTOCOL_OPERATIONS = (list_, show, start, pause, resume, cancel, run_next, retry, open_pr)
STEP_OPERATIONS = (run_step, review_step, approve_step)
