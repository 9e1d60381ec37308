"""`ratchet approval …`"""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.numbers import COUNT, ID
from ratchet.cli.opening import existing_ledger, existing_runtime
from ratchet.cli.output import confirm, show_list, show_one
from ratchet.cli.records import record
from ratchet.cli.times import age
from ratchet.ledger.approvals import Approval, ApprovalStatus, get_approval, list_approvals

if TYPE_CHECKING:
    from ratchet.cli.session import Session

_approval_argument = click.argument(
    "approval_id", metavar="APPROVAL", type=ID, help="The number of an approval."
)
_comment_option = click.option("--comment", metavar="TEXT", help="Why, for the record; nothing if not given.")
_by_option = click.option("--by", metavar="NAME", help="Who decides; the name of the user if not given.")


@command(
    "list",
    examples=["ratchet approval list", "ratchet approval list --status any --run 7"],
    see=["approval show", "approval approve", "approval refuse"],
)
@click.option(
    "--status",
    type=click.Choice([*map(str, ApprovalStatus), "any"]),
    default="pending",
    show_default=True,
    help="Only in this status.",
)
@click.option("--run", "run_id", type=ID, metavar="RUN", help="Only of this run.")
@click.option("--limit", "-n", type=COUNT, default=50, show_default=True, help="At most so many.")
@click.option("--before", type=ID, metavar="ID", help="Only older than this approval: the next page.")
@click.pass_obj
def list_(session: Session, /, status: str, **wanted: Any) -> None:
    """List what waits for a person, newest first.

    A run that needs an approval is blocked until it is decided.
    """
    chosen = None if status == "any" else ApprovalStatus(status)
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_approvals(tx, status=chosen, **wanted)
    show_list(
        session,
        found,
        {
            "approval": lambda approval: approval.id,
            "run": lambda approval: approval.run_id,
            "status": lambda approval: approval.status,
            "asked": lambda approval: age(approval.created_at),
            "by": lambda approval: approval.decided_by,
            "subject": lambda approval: approval.subject,
            "question": lambda approval: approval.question,
        },
        record=record,
        empty="No such approvals. A run that needs one is blocked until it is decided.",
    )


@command(examples=["ratchet approval show 4"], see=["approval approve", "approval refuse"])
@_approval_argument
@click.pass_obj
def show(session: Session, approval_id: int) -> None:
    """Show one approval with what is to be decided on.

    The question, what judges have said, and the change itself.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        approval = get_approval(tx, approval_id)
    show_one(session, record(approval), _fields(approval))


@command(
    examples=[
        "ratchet approval approve 4",
        'ratchet approval approve 4 --by Ada --comment "looked at the diff"',
    ]
)
@_approval_argument
@_comment_option
@_by_option
@click.pass_obj
def approve(session: Session, approval_id: int, comment: str | None, by: str | None) -> None:
    """Say yes; a run that waited for it goes on.

    A decision is final. A worker (`ratchet worker` or `ratchet serve`) goes on with the run.
    """
    _decide(session, approval_id, approved=True, comment=comment, by=by)


@command(examples=['ratchet approval refuse 4 --comment "breaks the old endpoint"'])
@_approval_argument
@_comment_option
@_by_option
@click.pass_obj
def refuse(session: Session, approval_id: int, comment: str | None, by: str | None) -> None:
    """Say no; a run that waited for it goes on without the change.

    A decision is final. A worker (`ratchet worker` or `ratchet serve`) goes on with the run.
    """
    _decide(session, approval_id, approved=False, comment=comment, by=by)


def _decide(
    session: Session, approval_id: int, *, approved: bool, comment: str | None, by: str | None
) -> None:
    from ratchet.judges import decide

    with existing_runtime(session) as runtime, runtime.ledger.write(actor="cli") as tx:
        decided = decide(tx, runtime, approval_id, approved=approved, by=by or _user(), comment=comment)
    confirm(session, record(decided), f"Approval {approval_id} is {decided.status}.")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user that has a number only
        return "cli"


def _fields(approval: Approval) -> dict[str, object]:
    shown = approval.data if isinstance(approval.data, dict) else {}
    verdicts = [f"{each['judge']}: {each['outcome']}: {each['reason']}" for each in shown.get("verdicts", [])]
    return {
        "approval": approval.id,
        "status": approval.status,
        "run": approval.run_id,
        "attempt": approval.attempt_id,
        "subject": approval.subject,
        "question": approval.question,
        "asked": age(approval.created_at),
        "decided": age(approval.decided_at),
        "by": approval.decided_by,
        "comment": approval.comment,
        "verdicts": "\n".join(verdicts) or None,
        "prompt": shown.get("prompt") or None,
        "diff": shown.get("diff") or None,
    }
