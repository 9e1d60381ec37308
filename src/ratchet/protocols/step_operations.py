"""The operations on the steps of protocols, on their specs and on what is asked about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ratchet.ledger.protocols import get_protocol, get_protocol_step, list_protocol_steps
from ratchet.ledger.questions import Clarification, find_clarification
from ratchet.operations import Listing, McpTool, OrderWindow, Param, described, line_of, number_of, operation
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
from ratchet.protocols.operations import ProtocolNumber, look_at_engines
from ratchet.protocols.views import SpecAnswer, StepAnswer
from ratchet.runtime.call import Call
from ratchet.runtime.operations.approvals import By
from ratchet.runtime.operations.jobs import JobAnswer, StepAcceptedAnswer

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
    model: Annotated[str | None, line_of()] = None,
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


STEP_OPERATIONS = (list_, add, run_step, review_step, approve_step)
ABOUT_PROTOCOLS = (spec, clarifications, clarification, answer_clarification)
SPEC_OPERATIONS = (check_spec,)
