"""The operations on the steps of protocols, on attempts, on specs and on what is asked about protocols."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ratchet.kernel import NotFound
from ratchet.ledger import Artifact, Event
from ratchet.ledger.ledger import LogPart, log_line, read_log
from ratchet.ledger.protocols import get_protocol, get_protocol_step, list_protocol_steps
from ratchet.ledger.questions import Clarification, find_clarification
from ratchet.ledger.runs import get_attempt, get_step, latest_attempts
from ratchet.operations import (
    MAX_ID,
    Listing,
    McpTool,
    OrderWindow,
    Param,
    Translation,
    Window,
    described,
    filled,
    line_of,
    number_of,
    operation,
)
from ratchet.projects.operations import (
    WITHOUT_PERSON,
    AnsweredBy,
    ClarificationAnswer,
    Given,
    Key,
    Open,
    asked_in,
    found_question,
    give_answer,
)
from ratchet.protocols.ci import Ci, ci_summary
from ratchet.protocols.operations import ProtocolNumber, look_at_engines
from ratchet.protocols.views import (
    AttemptAnswer,
    ProtocolEvent,
    ProtocolStepWithAttempts,
    SpecAnswer,
    StepAnswer,
    StepWithAttempts,
    attempt_answers,
)
from ratchet.runtime.call import Call
from ratchet.runtime.operations import runs
from ratchet.runtime.operations.approvals import By
from ratchet.runtime.operations.jobs import AcceptedAnswer, JobAnswer, StepAcceptedAnswer

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

_FINDING = "ratchet.protocols.lookup"
# What both databases hold in the column.
_LAST_INDEX = 2**31 - 1
_MOST_STEPS = 500
StepNumber = Annotated[
    int,
    number_of(
        "Its number, or PROTOCOL/NN: the protocol and the place in it.",
        "STEP",
        find=f"{_FINDING}:step_number",
    ),
]
AttemptNumber = Annotated[int, number_of("The number of an attempt.", "ATTEMPT")]
Offset = Annotated[int, Param("where to continue: `next_offset` of the last part", least=0, most=MAX_ID)]
MaxBytes = Annotated[int, Param("how much at most; a single line may be longer", least=1, most=1024 * 1024)]
AboutStep = Annotated[int | None, number_of("of this step of the protocol", "STEP", query=True)]


@operation(
    "step of-protocol",
    "GET /protocols/{protocol_id}/steps",
    project_too=True,
    tool=McpTool("list_protocol_steps", "List the steps of a protocol"),
    enveloped=False,
    limit=_MOST_STEPS,
)
def list_(call: Call, window: OrderWindow, protocol_id: ProtocolNumber) -> Listing[StepAnswer]:
    """List the steps of a protocol in their order, with status, reason and commit."""
    with call.read() as tx:
        get_protocol(tx, protocol_id)
        found = [each for each in list_protocol_steps(tx, protocol_id) if each.step_index > window.after]
    page = window.cut(found, number="step_index")
    return Listing([StepAnswer.of(each) for each in page.items], page.next)


@operation(
    "step with-attempts",
    "GET /steps/{step_id}",
    project_too=True,
    tool=McpTool("get_step", "Show a step"),
)
def show(call: Call, step_id: StepNumber, window: Window) -> ProtocolStepWithAttempts | StepWithAttempts:
    """Show a step of any run with its attempts, the last one first: verdicts, use and sessions.

    They are paged: `before` takes an attempt's number. A step of a protocol has its own fields, too.
    """
    with call.read() as tx:
        found = get_step(tx, step_id)
        tries = latest_attempts(tx, step_id, before=window.before, limit=window.one_more)
        page = window.cut(tries, number="number")
        attempts = Listing(attempt_answers(tx, page.items), page.next)
        try:
            own = StepAnswer.of(get_protocol_step(tx, step_id))
        except NotFound:
            return filled(StepWithAttempts, found, attempts=attempts)
    same = {each.name: getattr(found, each.name) for each in fields(found)}
    return filled(ProtocolStepWithAttempts, own, **same, attempts=attempts)


@operation(
    "step attempt",
    "GET /attempts/{attempt_id}",
    project_too=True,
    tool=McpTool("get_attempt", "Show an attempt"),
)
def attempt(call: Call, attempt_id: AttemptNumber) -> AttemptAnswer:
    """Show an attempt at a step: how it ended, what it used, and where its transcripts, diff and reports are."""
    with call.read() as tx:
        return attempt_answers(tx, [get_attempt(tx, attempt_id)])[0]


@operation("step artifacts", "GET /attempts/{attempt_id}/artifacts", project_too=True)
def attempt_artifacts(call: Call, attempt_id: AttemptNumber, window: Window) -> Listing[Artifact]:
    """List what an attempt has left, newest first."""
    from ratchet.ledger.artifacts import latest

    with call.read() as tx:
        get_attempt(tx, attempt_id)
        return window.cut(latest(tx, attempt_id=attempt_id, before=window.before, limit=window.one_more))


@operation(
    "step log",
    "GET /attempts/{attempt_id}/log",
    project_too=True,
    tool=McpTool(
        "read_attempt_log",
        "Read the log of an attempt",
        narrowed={"max_bytes": {"maximum": 30_000, "default": 20_000}},
    ),
)
def log(call: Call, attempt_id: AttemptNumber, offset: Offset = 0, max_bytes: MaxBytes = 65536) -> LogPart:
    """Read a part of what the sessions of an attempt said and did. Continue with `next_offset` until it has `ended`."""
    with call.read() as tx:
        return read_log(tx, attempt_id, offset=offset, max_bytes=max_bytes)


@operation(
    "step add",
    "POST /protocols/{protocol_id}/steps",
    project_too=True,
    tool=McpTool("add_step", "Add a step"),
    location="/steps/{it.id}",
)
def add(
    call: Call,
    protocol_id: ProtocolNumber,
    step_index: Annotated[int, Param(least=0, most=_LAST_INDEX)],
    step_name: Annotated[str, line_of("its file is NAME.md in the protocol's folder")],
    step_type: Annotated[str, line_of("setup, work or qa")],
    status: Literal["pending"] = "pending",  # noqa: ARG001
    model: Annotated[str | None, line_of(engine=True)] = None,
    engine_id: Annotated[str | None, line_of(engine=True)] = None,
    policy: Annotated[
        dict[str, Any] | list[dict[str, Any]] | None, Param("what a loop or trigger module does", engine=True)
    ] = None,
    summary: Annotated[str | None, Param(longest=10_000)] = None,
    depends_on: Annotated[list[str], line_of("names of steps; none means those before it")] = [],  # noqa: B006
) -> StepAnswer:
    """Add a pending step to a protocol.

    409 when its name or index is taken, or the protocol is being planned or has ended.
    """
    from ratchet.protocols.actions import add_step

    with call.write() as tx:
        step_id = add_step(
            tx,
            protocol_id,
            name=step_name,
            step_index=step_index,
            step_type=step_type,
            model=model,
            engine_id=engine_id,
            policies=policy if isinstance(policy, list) else [policy] if policy else [],
            summary=summary,
            depends_on=depends_on,
        )
        return StepAnswer.of(get_protocol_step(tx, step_id))


@operation(
    "step run",
    "POST /steps/{step_id}/actions/run",
    project_too=True,
    tool=McpTool("run_step", "Run a step", outside=True, queues=True),
    done="{it.message}",
)
def run_step(call: Call, step_id: StepNumber) -> StepAcceptedAnswer:
    """Run a step that is pending, blocked or failed. Of many who ask at once, one succeeds.

    Its engine is looked at first; if it cannot work now, nothing is begun.
    """
    from ratchet.protocols.engine_choice import check_step

    look_at_engines(call, check_step, step_id)
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
    tool=McpTool("review_step", "Review a step", outside=True, queues=True),
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
    tool=McpTool("approve_step", "Approve a step", without=frozenset({"by"}), destructive=True),
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


@operation(
    "protocol spec",
    "GET /protocols/{protocol_id}/spec",
    project_too=True,
    tool=McpTool("get_protocol_spec", "Show a spec"),
)
def spec(call: Call, protocol_id: ProtocolNumber) -> SpecAnswer:
    """Show the spec of a protocol, and whether it holds."""
    with call.read() as tx:
        return SpecAnswer.of(get_protocol(tx, protocol_id))


@operation(
    "protocol ci",
    "GET /protocols/{protocol_id}/ci",
    project_too=True,
    tool=McpTool("get_protocol_ci", "Show what CI says"),
)
def ci(call: Call, protocol_id: ProtocolNumber) -> Ci:
    """Show what CI says of a protocol, by commit and by check."""
    with call.read() as tx:
        return ci_summary(tx, get_protocol(tx, protocol_id))


@dataclass(frozen=True, slots=True)
class ProtocolLog:
    text: str
    next: int | None = field(metadata=described("null at the beginning"))


@operation(
    "protocol text",
    "GET /protocols/{protocol_id}/log",
    project_too=True,
    tool=McpTool("read_protocol_log", "Read the log of a protocol"),
)
def protocol_log(
    call: Call,
    protocol_id: ProtocolNumber,
    before: Annotated[int | None, number_of("only what was earlier than this", "N")] = None,
    limit: Annotated[int, Param("how many events at most", least=1, most=200)] = 50,
) -> ProtocolLog:
    """Read the last things that happened in a protocol and that its sessions said, as lines of text in their order.

    Pass `next` as `before` for what was earlier.
    """
    page = events(call, protocol_id, Window(before, limit))
    return ProtocolLog("".join(log_line(event) for event in reversed(page.items)), page.next)  # type: ignore[arg-type]


@operation(
    "protocol events",
    "GET /protocols/{protocol_id}/events",
    project_too=True,
    translated=Translation(ProtocolEvent, ProtocolEvent.of),
    enveloped=False,
)
def events(call: Call, protocol_id: ProtocolNumber, window: Window) -> Listing[Event]:
    """List the events of a protocol, newest first."""
    with call.read() as tx:
        get_protocol(tx, protocol_id)
    return runs.events(call, protocol_id, window)


@operation("protocol artifacts", "GET /protocols/{protocol_id}/artifacts", project_too=True)
def artifacts(call: Call, protocol_id: ProtocolNumber, window: Window) -> Listing[Artifact]:
    """List what the attempts of a protocol left, newest first; `/artifacts/SHA256` has the content."""
    with call.read() as tx:
        get_protocol(tx, protocol_id)
    return runs.artifacts(call, protocol_id, window)


@operation("spec json-schema", "GET /specs/schema", project_too=True)
def spec_schema(call: Call) -> dict[str, Any]:  # noqa: ARG001
    """The JSON Schema of specs."""
    from ratchet.protocols import spec

    return spec.spec_schema()


@operation("spec start-audit", "POST /specs/audit")
def audit(
    call: Call,
    project_id: Annotated[int | None, number_of("only protocols of this project", "PROJECT")] = None,
    protocol_id: Annotated[int | None, number_of("only this protocol", "PROTOCOL")] = None,
    backfill: Annotated[bool, Param("make specs from files for protocols that have none")] = False,
    interval_seconds: Annotated[
        float | None, Param("audit again, so often", above=0, most=31_536_000)
    ] = None,
) -> AcceptedAnswer:
    """Have specs checked against what is in the repositories. For the operator alone."""
    from ratchet.protocols.spec.audit import start_audit

    with call.write() as tx:
        job_id = start_audit(
            tx,
            call.runtime,
            project_id=project_id,
            protocol_id=protocol_id,
            backfill=backfill,
            interval_seconds=interval_seconds,
        )
        return AcceptedAnswer("the audit is queued", JobAnswer.at(tx, job_id))


@dataclass(frozen=True, slots=True)
class CheckedSpecAnswer:
    valid: bool
    problems: list[str] = field(metadata=described("a sentence for each thing that is wrong"))


@operation("spec check", "POST /specs/validate", project_too=True, changes_nothing=True)
def check_spec(
    call: Call,  # noqa: ARG001
    spec: Annotated[dict[str, Any], Param("as GET /specs/schema describes it")],
) -> CheckedSpecAnswer:
    """Say everything that is wrong with a spec. Files are not looked for."""
    from ratchet.protocols.spec import spec_problems

    problems = spec_problems(spec)
    return CheckedSpecAnswer(not problems, problems)


@operation(
    "protocol clarifications",
    "GET /protocols/{protocol_id}/clarifications",
    project_too=True,
    tool=McpTool("list_protocol_clarifications", "List the questions of a protocol"),
    enveloped=False,
)
def clarifications(
    call: Call, window: OrderWindow, protocol_id: ProtocolNumber, open: Open = False
) -> Listing[ClarificationAnswer]:
    """List the questions to people about a protocol and its steps, in the order in which they were asked."""
    with call.read() as tx:
        get_protocol(tx, protocol_id)
        return asked_in(tx, window, run_id=protocol_id, open_only=open)


@operation(
    "protocol clarification", "GET /protocols/{protocol_id}/clarifications/{key:path}", project_too=True
)
def clarification(
    call: Call, protocol_id: ProtocolNumber, key: Key, step_id: AboutStep = None
) -> ClarificationAnswer:
    """Show a question about the protocol, or about one of its steps."""
    with call.read() as tx:
        return ClarificationAnswer.of(_asked(tx, protocol_id, key, step_id))


@operation(
    "protocol answer-clarification",
    "POST /protocols/{protocol_id}/clarifications/{key:path}",
    project_too=True,
    tool=McpTool(
        "answer_clarification", "Answer a question about a protocol", without=WITHOUT_PERSON, queues=True
    ),
)
def answer_clarification(
    call: Call,
    protocol_id: ProtocolNumber,
    key: Key,
    answer: Given,
    answered_by: AnsweredBy = None,
    step_id: AboutStep = None,
) -> ClarificationAnswer:
    """Answer a question of a protocol or, with `step_id`, of a step; what waited for this alone is resumed.

    An answer cannot be changed.
    """
    with call.write() as tx:
        return give_answer(call, tx, _asked(tx, protocol_id, key, step_id), answer, answered_by)


def _asked(tx: Transaction, protocol_id: int, key: str, step_id: int | None) -> Clarification:
    project_id = get_protocol(tx, protocol_id).project_id
    return found_question(find_clarification(tx, project_id, key, run_id=protocol_id, step_id=step_id), key)


STEP_OPERATIONS = (list_, show, add, run_step, review_step, approve_step)
ATTEMPT_OPERATIONS = (attempt, attempt_artifacts, log)
ABOUT_PROTOCOLS = (
    spec,
    ci,
    protocol_log,
    events,
    artifacts,
    clarifications,
    clarification,
    answer_clarification,
)
SPEC_OPERATIONS = (spec_schema, check_spec, audit)
