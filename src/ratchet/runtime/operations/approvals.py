"""The operations on approvals: what waits for a person, and the answers."""

from __future__ import annotations

import json
from typing import Annotated, Any

from ratchet.ledger.projects import projects_of_runs
from ratchet.ledger.questions import ANSWER_SCHEMA, Approval, ApprovalStatus, get_approval, list_approvals
from ratchet.operations import Listing, McpTool, Param, Window, number_of, operation
from ratchet.runtime.call import Call
from ratchet.runtime.operations.runs import RunFilter

ApprovalNumber = Annotated[int, number_of("The number of an approval.", "APPROVAL")]
StatusFilter = Annotated[ApprovalStatus | None, Param("Only in this status.", usual="pending")]
Comment = Annotated[
    str | None, Param("Why, for the record; nothing if not given.", metavar="TEXT", longest=10_000)
]
By = Annotated[
    str | None,
    Param(
        "Who decides; the name of the user if not given.",
        metavar="NAME",
        shortest=1,
        longest=200,
        outside="who decides, if not the caller as the ledger calls it",
    ),
]
Answer = Annotated[
    Any,
    Param(
        "The answer as JSON, where more is asked for than yes or no; a plain text counts as one.",
        metavar="JSON",
        read="ratchet.runtime.operations.approvals:read_answer",
        outside="the answer, where more is asked for than yes or no (`answer_schema` in its data)",
    ),
]
# Who decides is known where a model asks: the record must not rest on what it says.
_WITHOUT = frozenset({"by"})


@operation(
    "approval list",
    "GET /approvals",
    project_too=True,
    tool=McpTool("list_approvals", "List approvals"),
    examples=["ratchet approval list", "ratchet approval list --status any --run 7"],
    see=["approval show", "approval approve", "approval refuse"],
    columns={
        "approval": "id",
        "run": "run_id",
        "status": "status",
        "asked": "created_at",
        "by": "decided_by",
        "subject": "subject",
        "question": "question",
    },
    empty="No such approvals. A run that needs one is blocked until it is decided.",
)
def list_(
    call: Call, window: Window, status: StatusFilter = None, run_id: RunFilter = None
) -> Listing[Approval]:
    """List what waits for a person, newest first.

    A run that needs an approval is blocked until it is decided. Those of projects whose token was not shown are left
    out.
    """
    with call.read() as tx:
        found = list_approvals(tx, status=status, run_id=run_id, before=window.before, limit=window.one_more)
        projects = projects_of_runs(tx, {each.run_id for each in found if each.run_id is not None})
        hidden = call.hidden(tx, projects.values())
    return window.without(found, lambda each: projects.get(each.run_id or 0) in hidden)


def read_answer(_call: object, text: str) -> Any:
    """What a person has typed, as JSON; a text that is none stands for itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _of_data(key: str) -> object:
    def read(approval: Approval) -> object:
        return (approval.data.get(key) or None) if isinstance(approval.data, dict) else None

    return read


def _verdicts(approval: Approval) -> str | None:
    found = approval.data.get("verdicts", []) if isinstance(approval.data, dict) else []
    return "\n".join(f"{each['judge']}: {each['outcome']}: {each['reason']}" for each in found) or None


@operation(
    "approval show",
    "GET /approvals/{approval_id}",
    project_too=True,
    examples=["ratchet approval show 4"],
    see=["approval approve", "approval refuse"],
    columns={
        "approval": "id",
        "status": "status",
        "run": "run_id",
        "attempt": "attempt_id",
        "subject": "subject",
        "question": "question",
        "values": _of_data("values"),
        "asks for": _of_data(ANSWER_SCHEMA),
        "asked": "created_at",
        "decided": "decided_at",
        "by": "decided_by",
        "answer": lambda approval: approval.answer,
        "comment": "comment",
        "verdicts": _verdicts,
        "prompt": _of_data("prompt"),
        "diff": _of_data("diff"),
    },
)
def show(call: Call, approval_id: ApprovalNumber) -> Approval:
    """Show one approval with what is to be decided on.

    The question, what judges have said, and the change itself.
    """
    with call.read() as tx:
        return get_approval(tx, approval_id)


@operation(
    "approval approve",
    "POST /approvals/{approval_id}/approve",
    tool=McpTool("approve", "Approve", without=_WITHOUT, destructive=True, queues=True),
    examples=[
        "ratchet approval approve 4",
        'ratchet approval approve 4 --by Ada --comment "looked at the diff"',
        """ratchet approval approve 4 --answer '{"size": 3}'""",
    ],
    done="Approval {it.id} is {it.status}",
)
def approve(
    call: Call, approval_id: ApprovalNumber, comment: Comment = None, by: By = None, answer: Answer = None
) -> Approval:
    """Say yes, or give the answer that is asked for; a run that waited for it is resumed.

    A decision is final. A worker (`ratchet worker` or `ratchet serve`) does what is left of the run.
    """
    return _decide(call, approval_id, by, comment, approved=True, answer=answer)


@operation(
    "approval refuse",
    "POST /approvals/{approval_id}/refuse",
    tool=McpTool("refuse", "Refuse", without=_WITHOUT, destructive=True, queues=True),
    examples=['ratchet approval refuse 4 --comment "breaks the old endpoint"'],
    done="Approval {it.id} is {it.status}",
)
def refuse(call: Call, approval_id: ApprovalNumber, comment: Comment = None, by: By = None) -> Approval:
    """Say no; a run that waited for it is resumed without the change.

    A decision is final. A worker (`ratchet worker` or `ratchet serve`) does what is left of the run.
    """
    return _decide(call, approval_id, by, comment, approved=False)


def _decide(
    call: Call,
    approval_id: int,
    by: str | None,
    comment: str | None,
    *,
    approved: bool,
    answer: Any = None,
) -> Approval:
    from ratchet.runtime.runs import answer_approval

    with call.write() as tx:
        return answer_approval(
            tx,
            call.runtime,
            approval_id,
            approved=approved,
            by=by or call.person,
            comment=comment,
            answer=answer,
        )


OPERATIONS = (list_, show, approve, refuse)
