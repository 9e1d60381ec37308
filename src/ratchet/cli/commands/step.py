"""`ratchet step …`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.operation import CliCall
from ratchet.cli.output import print_document, print_foreign, show_list, show_one
from ratchet.cli.params import COUNT, protocol_argument, step_argument, within_option
from ratchet.cli.protocol_work import foreground_command
from ratchet.cli.words import age, compact, span
from ratchet.kernel import NotFound, decoded
from ratchet.ledger.artifacts import of_attempt
from ratchet.ledger.protocols import ProtocolStep
from ratchet.ledger.runs import list_attempts
from ratchet.loop import CHANGE_FILE, PROMPT_FILE
from ratchet.operations import record
from ratchet.protocols import step_operations
from ratchet.protocols.engine_choice import check_step
from ratchet.protocols.lookup import protocol_named, step_named
from ratchet.protocols.overview import overview
from ratchet.protocols.qa.judge import MARKDOWN
from ratchet.protocols.views import attempt_answers, step_record

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.ledger import Attempt, Ledger

_FILES = {"prompt": PROMPT_FILE, "diff": CHANGE_FILE, "report": MARKDOWN}


@command(
    "list",
    examples=["ratchet step list 7", "ratchet step list 0007-add-login --project shop --json"],
    see=["step show"],
)
@protocol_argument
@within_option
def list_(session: CliSession, wanted: str, project: str | None) -> None:
    """List the steps of a protocol, in their order."""
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = overview(tx, protocol_named(tx, wanted, project=project).run_id)
    show_list(
        session,
        found["steps"],
        {
            "step": lambda step: step["id"],
            "name": lambda step: step["step_name"],
            "type": lambda step: step["step_type"],
            "status": lambda step: step["status"],
            "tries": lambda step: step["attempts"],
            "verdict": lambda step: step["outcome"],
            "commit": lambda step: None if step["commit"] is None else step["commit"][:12],
            "ci": lambda step: step["ci"],
            "after": lambda step: ", ".join(step["depends_on"]) or None,
            "engine": lambda step: step["engine_id"],
            "reason": lambda step: step["reason"],
        },
        record=lambda step: dict(step),
        empty=f"Protocol {found['id']} has no steps yet; it is {found['status']}.",
    )


@command(
    examples=[
        "ratchet step show 12",
        "ratchet step show 0007-add-login/01",
        "ratchet step show 7/01 --print diff",
        "ratchet step show 7/01 --print report --attempt 1",
    ],
    see=["protocol log"],
)
@step_argument
@within_option
@click.option(
    "--attempt", type=COUNT, metavar="N", help="Print of its Nth attempt; of the last if not given."
)
@click.option(
    "--print",
    "part",
    type=click.Choice(list(_FILES)),
    help="Print what its author was asked, what it changed, or what QA said, and nothing else.",
)
def show(
    session: CliSession, wanted: str, project: str | None, attempt: int | None, part: str | None
) -> None:
    """Show one step with its attempts.

    STEP is its number, or PROTOCOL/NN.
    """
    with existing_ledger(session) as ledger:
        with ledger.read() as tx:
            step = step_named(tx, wanted, project=project)
            tries = list_attempts(tx, step.step_id)
            records = [record(each) for each in attempt_answers(tx, tries)]
        if part is not None:
            _print_file(session, ledger, step, _nth(step, tries, attempt), part)
            return
    chosen = [each for each in records if attempt in (None, each["number"])]
    show_one(session, {**step_record(step), "attempts": chosen}, _fields(step))
    if chosen and not session.json:
        print()
        _print_attempts([each for each in tries if attempt in (None, each.number)], chosen)


@foreground_command(
    step_operations.run_step,
    check=check_step,
    examples=["ratchet step run 12", "ratchet step run 0007-add-login/02", "ratchet step run 7/02 --detach"],
    see=["step qa", "step approve"],
)
def run(call: CliCall, step_id: int) -> object:
    """Run one step now: a pending one, or once more one that is blocked or has failed.

    STEP is its number, or PROTOCOL/NN. It does not matter whether steps before it are done. Exits with 0 when it is
    completed.
    """
    return step_operations.begin_step(call, step_id)


@foreground_command(
    step_operations.review_step,
    examples=["ratchet step qa 12", "ratchet step qa 7/02 --detach"],
    see=["step run", "step approve"],
)
def qa(call: CliCall, step_id: int) -> object:
    """Have the newest commit of a step judged once more, without a new session of its author.

    STEP is its number, or PROTOCOL/NN. Exits with 0 when it has passed.
    """
    return step_operations.review_step(call, step_id)


@foreground_command(
    step_operations.approve_step,
    examples=["ratchet step approve 12", "ratchet step approve 0007-add-login/02 --by Ada --detach"],
    see=["step show"],
)
def approve(call: CliCall, step_id: int, by: str | None) -> object:
    """Complete a step in the place of its judges, with the newest commit that its author made.

    The protocol resumes then, here unless --detach is given. STEP is its number, or PROTOCOL/NN. Look at the change
    first: `ratchet step show STEP --print diff`. Exits with 0 when the step is completed.
    """
    return step_operations.approve_step(call, step_id, by)


def _nth(step: ProtocolStep, tries: Sequence[Attempt], attempt: int | None) -> Attempt:
    wanted = [each for each in tries if attempt in (None, each.number)]
    if not wanted:
        error = NotFound(f"attempt of step {step.step_id}", attempt or "")
        error.hint = f"it was tried {len(tries)} times"
        raise error
    return wanted[-1]


def _print_file(session: CliSession, ledger: Ledger, step: ProtocolStep, attempt: Attempt, part: str) -> None:
    with ledger.read() as tx:
        found = [each for each in of_attempt(tx, attempt.id) if each.name == _FILES[part]]
    if not found:
        raise NotFound(f"{part} of attempt {attempt.number} of {step.name}", "yet")
    text = decoded(ledger.artifacts.read(found[-1].sha256))
    if session.json:
        print_document({"step": step.name, "attempt": attempt.number, part: text})
    else:
        print_foreign(text.removesuffix("\n"))


def _fields(step: ProtocolStep) -> dict[str, object]:
    qa = ((step.spec or {}).get("qa") or {}).get("policy")
    return {
        "step": step.step_id,
        "protocol": step.run_id,
        "name": step.name,
        "type": step.step_type,
        "status": f"{step.status}, waits for CI" if step.awaits_ci else str(step.status),
        "reason": step.reason,
        "engine": step.engine_id,
        "model": step.model,
        "qa": qa,
        "after": ", ".join(step.depends_on or []) or None,
        "policies": compact(step.policy),
        "retries": step.retries or None,
        "commit": step.commit,
        "ended": age(step.ended_at),
    }


def _print_attempts(tries: Sequence[Attempt], records: Sequence[Mapping[str, Any]]) -> None:
    from ratchet.cli.tables import print_table

    print_table(
        list(zip(tries, records, strict=True)),
        {
            "attempt": lambda each: each[0].number,
            "outcome": lambda each: each[0].outcome or "under way",
            "took": lambda each: span(each[0].started_at, each[0].ended_at),
            "tokens": lambda each: (
                each[1]["usage"]["input_tokens"] + each[1]["usage"]["output_tokens"] or None
            ),
            "sessions": lambda each: (
                ", ".join(f"{one['role']} {one['engine']}" for one in each[1]["sessions"]) or None
            ),
            "simulated": lambda each: True if each[0].simulated else None,
            "reason": lambda each: each[0].reason,
        },
    )
