"""The operations on runs."""

from __future__ import annotations

from typing import Annotated, Literal

from ratchet.kernel import Misuse, RunStatus
from ratchet.ledger import Artifact, Event, EventFilter, Run, Step
from ratchet.ledger.runs import get_run, latest_steps, list_runs
from ratchet.operations import MAX_ID, Listing, McpTool, Param, Window, number_of, operation
from ratchet.runtime.call import Call

RunNumber = Annotated[int, number_of("The number of a run.", "RUN")]
ProjectFilter = Annotated[int | None, number_of("Only of this project.", "PROJECT", "--project")]
RunFilter = Annotated[int | None, number_of("Only of this run.", "RUN", "--run")]
StatusFilter = Annotated[RunStatus | None, Param("Only in this status.")]
KindFilter = Annotated[
    str | None,
    Param("Only of this kind: protocol, research, workflow, agent, …", metavar="KIND", longest=200),
]
Reason = Annotated[str, Param("Why, for the record.", longest=2000)]
StepFilter = Annotated[int | None, number_of("Only of this step.", "STEP", "--step")]
AttemptFilter = Annotated[int | None, number_of("Only of this attempt.", "ATTEMPT", "--attempt")]
JobFilter = Annotated[int | None, number_of("Only of this job.", "JOB", "--job")]
TypeFilter = Annotated[str | None, Param("Only this type.", longest=200)]
Short = Annotated[Literal["onboarding"] | None, Param("`onboarding` is short for the type `setup_*`")]
Since = Annotated[int | None, Param("only events above this number", least=0, most=MAX_ID)]


def simulated(run: Run) -> str | None:
    """A recording is marked wherever a run is shown."""
    if run.used_recording:
        return "used a recording"
    return "allowed" if run.simulated else None


@operation(
    "runs list",
    "GET /runs",
    project_too=True,
    tool=McpTool("list_runs", "List runs"),
    examples=[
        "ratchet runs list",
        "ratchet runs list --status blocked",
        "ratchet runs list --kind research -n 5 --json",
    ],
    see=["runs show"],
    columns={
        "run": "id",
        "kind": "kind",
        "name": "name",
        "status": "status",
        "simulated": simulated,
        "created": "created_at",
        "took": ("created_at", "ended_at"),
        "reason": "reason",
    },
    empty="No such runs. `ratchet demo` makes one.",
)
def list_(
    call: Call,
    window: Window,
    kind: KindFilter = None,
    status: StatusFilter = None,
    project_id: ProjectFilter = None,
) -> Listing[Run]:
    """List runs, newest first.

    A run is one execution of anything: a protocol, research, a workflow, a change of an agent. Runs of projects whose
    token was not shown are left out.
    """
    with call.read() as tx:
        found = list_runs(
            tx,
            kind=kind,
            status=status,
            project_id=call.project_id or project_id,
            before=window.before,
            limit=window.one_more,
        )
        hidden = call.hidden(tx, (run.project_id for run in found))
    return window.without(found, lambda run: run.project_id in hidden)


@operation(
    "runs show",
    "GET /runs/{run_id}",
    project_too=True,
    tool=McpTool("get_run", "Show a run"),
    examples=["ratchet runs show 7", "ratchet runs show 7 --json | jq '.steps[].status'"],
    see=["events", "runs list"],
    columns={
        "run": "id",
        "kind": "kind",
        "name": "name",
        "project": "project_id",
        "status": "status",
        "reason": "reason",
        "simulated": simulated,
        "created": "created_at",
        "took": ("created_at", "ended_at"),
        "spec": "spec",
        "result": "result",
    },
)
def show(call: Call, run_id: RunNumber) -> Run:
    """Show one run: its status, the reason for it, and its result.

    The command line also shows what it has used, and its steps with their attempts.
    """
    with call.read() as tx:
        return get_run(tx, run_id)


@operation(
    "runs steps",
    "GET /runs/{run_id}/steps",
    project_too=True,
    tool=McpTool("list_run_steps", "List the steps of a run"),
)
def steps(call: Call, run_id: RunNumber, window: Window) -> Listing[Step]:
    """List the steps of a run of any kind, the last one first; `position` is its place in the run."""
    with call.read() as tx:
        get_run(tx, run_id)
        return window.cut(latest_steps(tx, run_id, before=window.before, limit=window.one_more))


@operation("runs events", "GET /runs/{run_id}/events", project_too=True)
def events(call: Call, run_id: RunNumber, window: Window) -> Listing[Event]:
    """List the events of a run, newest first."""
    from ratchet.ledger.events import latest

    with call.read() as tx:
        get_run(tx, run_id)
        where = EventFilter(run_id=run_id)
        return window.cut(latest(tx.connection, before=window.before, where=where, limit=window.one_more))


def event_filter(
    call: Call,
    project_id: ProjectFilter = None,
    run_id: RunFilter = None,
    step_id: StepFilter = None,
    attempt_id: AttemptFilter = None,
    job_id: JobFilter = None,
    type: TypeFilter = None,
    kind: Short = None,
) -> EventFilter:
    if kind is not None and type is not None:
        raise Misuse("kind and type cannot be combined", hint="give the one or the other")
    type = "setup_*" if kind else type
    return EventFilter(call.project_id or project_id, run_id, step_id, attempt_id, job_id, type)


@operation(
    "runs all-events",
    "GET /events",
    project_too=True,
    tool=McpTool("list_events", "List events"),
    enveloped=False,
)
def all_events(
    call: Call,
    window: Window,
    project_id: ProjectFilter = None,
    run_id: RunFilter = None,
    step_id: StepFilter = None,
    attempt_id: AttemptFilter = None,
    job_id: JobFilter = None,
    type: TypeFilter = None,
    kind: Short = None,
    since: Since = None,
) -> Listing[Event]:
    """List what happened, newest first; with `since` oldest first.

    A `type` such as `run.*` or `setup_*` means every type that starts so. Events of projects whose token was not shown
    are left out, so a page may be short.
    """
    where = event_filter(call, project_id, run_id, step_id, attempt_id, job_id, type, kind)
    return events_where(call, window, where, since)


def events_where(call: Call, window: Window, where: EventFilter, since: int | None = None) -> Listing[Event]:
    from ratchet.ledger import events as ledger_events

    if since is not None and window.before is not None:
        raise Misuse("before and since cannot be combined", hint="use before to go back, since to continue")
    with call.read() as tx:
        if since is None:
            found = ledger_events.latest(
                tx.connection, before=window.before, where=where, limit=window.one_more
            )
        else:
            found = ledger_events.since(tx.connection, since, where=where, limit=window.one_more)
        hidden = call.hidden(tx, (event.project_id for event in found))
    cursor = "before" if since is None else "since"
    return window.without(found, lambda event: event.project_id in hidden, cursor=cursor)


@operation(
    "runs artifacts",
    "GET /runs/{run_id}/artifacts",
    project_too=True,
    tool=McpTool("list_run_artifacts", "List the artifacts of a run"),
)
def artifacts(call: Call, run_id: RunNumber, window: Window) -> Listing[Artifact]:
    """List the outputs, transcripts and reports that a run has left, newest first."""
    from ratchet.ledger.artifacts import latest

    with call.read() as tx:
        get_run(tx, run_id)
        return window.cut(latest(tx, run_id=run_id, before=window.before, limit=window.one_more))


@operation(
    "runs pause",
    "POST /runs/{run_id}/actions/pause",
    tool=McpTool("pause_run", "Pause a run", repeatable=True),
    examples=["ratchet runs pause 7", 'ratchet runs pause 7 --reason "the machine is needed"'],
    see=["runs resume", "runs cancel"],
    done="Run {it.id} is paused",
    then="`ratchet runs resume {it.id}` resumes it",
)
def pause(call: Call, run_id: RunNumber, reason: Reason = "paused on request") -> Run:
    """Pause a run; what it has recorded stays.

    Its worker is asked to stop. A run that has ended cannot be paused; pausing it again changes nothing.
    """
    from ratchet.runtime import pause_run

    with call.write() as tx:
        pause_run(tx, call.runtime, run_id, reason=reason)
        return get_run(tx, run_id)


@operation(
    "runs resume",
    "POST /runs/{run_id}/actions/resume",
    tool=McpTool("resume_run", "Resume a run", outside=True, queues=True),
    examples=["ratchet runs resume 7"],
    see=["runs show", "worker"],
    done="Run {it.id} is resumed",
)
def resume(call: Call, run_id: RunNumber) -> Run:
    """Resume a paused or blocked run.

    It is queued for a worker: `ratchet worker` or `ratchet serve` does it.
    """
    from ratchet.runtime import resume_run

    with call.write() as tx:
        resume_run(tx, call.runtime, run_id)
        return get_run(tx, run_id)


@operation(
    "runs cancel",
    "POST /runs/{run_id}/actions/cancel",
    tool=McpTool("cancel_run", "Cancel a run", destructive=True, repeatable=True),
    examples=["ratchet runs cancel 7", 'ratchet runs cancel 7 --reason "not needed any more"'],
    see=["runs pause"],
    done="Run {it.id} is cancelled",
)
def cancel(call: Call, run_id: RunNumber, reason: Reason = "cancelled on request") -> Run:
    """Cancel a run for good, with all its unfinished steps.

    Its worker is asked to stop. It cannot be resumed; what is recorded stays. Cancelling it again changes nothing.
    """
    from ratchet.runtime import cancel_run

    with call.write() as tx:
        cancel_run(tx, call.runtime, run_id, reason=reason)
        return get_run(tx, run_id)


OPERATIONS = (list_, show, steps, events, artifacts, pause, resume, cancel)
EVENT_OPERATIONS = (all_events,)
