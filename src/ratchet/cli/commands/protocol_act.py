"""`ratchet protocol start`, `resume`, `run-next`, `retry` and `open-pr`: they do the work here, unless told not to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import existing_foreground
from ratchet.cli.operation import CliCall
from ratchet.cli.output import note
from ratchet.cli.protocol_carrying import Overview, carry_protocol, is_done, leave_to_workers
from ratchet.cli.protocol_choice import detach_option, protocol_argument, within_option
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols import operations
from ratchet.protocols.engine_choice import (
    UNDER_WAY,
    check_existing,
    check_next,
    check_resumed,
    check_retried,
)
from ratchet.protocols.jobs import wake
from ratchet.protocols.lookup import protocol_named
from ratchet.protocols.views import protocol_record

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.runtime import Runtime
    from ratchet.runtime.operations.jobs import StepAcceptedAnswer

_no_wait_option = click.option("--no-wait", is_flag=True, help="Do not wait for CI.")


@command(
    examples=[
        "ratchet protocol start 7",
        "ratchet protocol start 0007-add-login --project shop",
        "ratchet protocol start 7 --detach",
    ],
    see=["protocol show", "protocol resume"],
)
@protocol_argument
@within_option
@_no_wait_option
@detach_option
@click.pass_obj
def start(session: Session, wanted: str, project: str | None, no_wait: bool, detach: bool) -> int | None:
    """Plan a protocol, or carry out the plan that it has.

    The work is done here until it stands still; Ctrl-C pauses it. A pending, planned or paused protocol can be started,
    and one whose planning was blocked.

    Exits with 0 when the protocol is completed (or planned, if its steps are started by hand), 1 when it is blocked or
    waits for CI, 3 when an engine is missing.
    """
    return _act(
        session, wanted, project, operations.begin, detach=detach, wait=not no_wait, check=check_existing
    )


@command(
    examples=[
        "ratchet protocol resume 7",
        "ratchet protocol resume 7 --no-wait",
        "ratchet protocol resume 0007-add-login --detach",
    ],
    see=["protocol retry", "protocol show"],
)
@protocol_argument
@within_option
@_no_wait_option
@detach_option
@click.pass_obj
def resume(session: Session, wanted: str, project: str | None, no_wait: bool, detach: bool) -> int | None:
    """Go on with a protocol that was paused, blocked or cut off, here and now.

    Steps that were blocked are done again; one that has failed is tried again by `ratchet protocol retry` only. If a
    step waits for CI, the forge is asked for its checks until they have spoken.
    """
    return _act(session, wanted, project, _resumed, detach=detach, wait=not no_wait, check=check_resumed)


@command(
    "run-next",
    examples=["ratchet protocol run-next 7", "ratchet protocol run-next 0007-add-login --detach"],
    see=["step run", "protocol retry"],
)
@protocol_argument
@within_option
@_no_wait_option
@detach_option
@click.pass_obj
def run_next(session: Session, wanted: str, project: str | None, no_wait: bool, detach: bool) -> int | None:
    """Run the first step that waits, is blocked or has failed.

    For protocols whose steps are started by hand. Exits with 0 when that step is completed.
    """
    return _act_on_step(
        session, wanted, project, operations.begin_next, detach=detach, wait=not no_wait, check=check_next
    )


@command(
    examples=["ratchet protocol retry 7", "ratchet protocol retry 0007-add-login --detach"],
    see=["protocol resume", "step run"],
)
@protocol_argument
@within_option
@_no_wait_option
@detach_option
@click.pass_obj
def retry(session: Session, wanted: str, project: str | None, no_wait: bool, detach: bool) -> int | None:
    """Try the last step that failed or is blocked once more.

    It begins anew from the branch, and is allowed as many fixes as before. Exits with 0 when that step is completed.
    """
    return _act_on_step(
        session, wanted, project, operations.begin_retry, detach=detach, wait=not no_wait, check=check_retried
    )


@command(
    "open-pr", examples=["ratchet protocol open-pr 7", "ratchet protocol open-pr 0007-add-login --detach"]
)
@protocol_argument
@within_option
@detach_option
@click.pass_obj
def open_pr(session: Session, wanted: str, project: str | None, detach: bool) -> int | None:
    """Push the branch of a protocol and open its pull request.

    Also where protocols.push or protocols.pull_requests are off. One that there is already stays, with its
    description written anew. Exits with 0 when there is a pull request.
    """

    return _act(
        session,
        wanted,
        project,
        operations.open_pr,
        detach=detach,
        wait=False,
        done=lambda found: found["pull_request"] is not None,
    )


def _resumed(call: CliCall, protocol_id: int) -> None:
    """One whose process was killed still counts as running: it only needs a worker."""
    with call.read() as tx:
        under_way = get_protocol(tx, protocol_id).status in UNDER_WAY
    if under_way:
        with call.write() as tx:
            wake(tx, call.runtime, protocol_id)
    else:
        operations.begin_again(call, protocol_id)


def _act(
    session: Session,
    wanted: str,
    project: str | None,
    act: Callable[[CliCall, int], object],
    *,
    detach: bool,
    wait: bool,
    done: Callable[[Overview], bool] = is_done,
    check: Callable[[Runtime, int], None] | None = None,
) -> int | None:
    with existing_foreground(session) as here:
        with here.ledger.read() as tx:
            protocol = protocol_named(tx, wanted, project=project)
        if check is not None:
            here.check(partial(check, here.runtime, protocol.run_id), detach=detach)
        act(CliCall(session, here.ledger, here.runtime), protocol.run_id)
        if detach:
            with here.ledger.read() as tx:
                found = get_protocol(tx, protocol.run_id)
            told = f"Protocol {protocol.run_id} waits for a worker."
            leave_to_workers(session, here.ledger, protocol_record(found), told)
            return None
        return carry_protocol(session, here, protocol.run_id, protocol.name, done=done, wait=wait)


def _act_on_step(
    session: Session,
    wanted: str,
    project: str | None,
    action: Callable[[CliCall, int], StepAcceptedAnswer],
    *,
    detach: bool,
    wait: bool,
    check: Callable[[Runtime, int], None],
) -> int | None:
    chosen: list[int] = []

    def act(call: CliCall, protocol_id: int) -> None:
        accepted = action(call, protocol_id)
        chosen.append(accepted.step_id)
        if not session.json:
            note(f"{accepted.message}.")

    return _act(
        session,
        wanted,
        project,
        act,
        detach=detach,
        wait=wait,
        done=lambda found: completed(found, chosen),
        check=check,
    )


def completed(found: Overview, steps: list[int]) -> bool:
    """Whether these steps of a protocol are completed."""
    return all(each["status"] == "completed" for each in found["steps"] if each["id"] in steps)
