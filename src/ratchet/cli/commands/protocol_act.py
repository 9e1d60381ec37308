"""`ratchet protocol new`, `start`, `resume`, `run-next`, `retry` and `open-pr`"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import Foreground, foreground
from ratchet.cli.operation import CliCall
from ratchet.cli.output import confirm, note
from ratchet.cli.params import detach_option, from_file_option, given_text, no_wait_option
from ratchet.cli.protocol_work import (
    chosen_project,
    foreground_command,
    leave_to_workers,
    require_set_up,
    set_up,
    work_on_protocol,
)
from ratchet.cli.words import one_line
from ratchet.config import write_initial
from ratchet.config.workflow_settings import REVIEWER_POLICIES
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.kernel import Conflict, Misuse, RunStatus
from ratchet.ledger.events import last_id
from ratchet.ledger.protocols import get_protocol, list_protocols
from ratchet.projects.local import find_top, left_out
from ratchet.protocols import operations
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.protocols.engine_choice import (
    UNDER_WAY,
    check_existing,
    check_new,
    check_next,
    check_resumed,
    check_retried,
)
from ratchet.protocols.jobs import wake
from ratchet.protocols.names import create_described
from ratchet.protocols.views import protocol_record

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.ledger import Transaction
    from ratchet.ledger.projects import Project


_MOST_BYTES = 100_000
_UNFINISHED = 1000


@command(
    examples=[
        'ratchet protocol new "Add a login page with tests." --run',
        'ratchet protocol new "Add a login page." --project shop --base develop',
        "ratchet protocol new --from-file wish.md --run --engine codex --reviewer claude",
        'ratchet protocol new "Add a login page." --name 0042-login --run --manual',
        'ratchet protocol new "Add a login page." --run --detach',
    ],
    see=["protocol show", "protocol start", "project add"],
)
@click.argument(
    "description",
    metavar="[DESCRIPTION]",
    required=False,
    help="What to change, in words; or give --from-file.",
)
@from_file_option
@click.option("--project", metavar="PROJECT", help="Its id or name; else the repository here.")
@click.option(
    "--name", metavar="NNNN-TASK", help="Its name and branch; else the next number and the first words."
)
@click.option("--base", metavar="BRANCH", help="What it starts from; the project's base branch if not given.")
@click.option("--run", "running", is_flag=True, help="Plan it and carry it out, here and now.")
@click.option("--manual", is_flag=True, help="Plan it only; each step is started by hand.")
@click.option("--engine", metavar="ENGINE", help="Who carries out steps; see `ratchet engine list`.")
@click.option("--model", metavar="MODEL", help="The model that carries out steps.")
@click.option(
    "--reviewer",
    metavar="ENGINE|POLICY",
    help="Who reviews: an engine, or independent, other-model or any; protocols.reviewer if not given.",
)
@click.option(
    "--simulated", is_flag=True, help="Allow recorded sessions; the protocol is marked as a simulation."
)
@no_wait_option
@detach_option
def new(
    session: CliSession,
    /,
    description: str | None,
    file: str | None,
    project: str | None,
    name: str | None,
    base: str | None,
    running: bool,
    no_wait: bool,
    detach: bool,
    **how: Any,
) -> int | None:
    """Make a protocol: a change of a repository, to be planned and carried out step by step.

    It belongs to the project that is named, else to the repository that this directory is in, which becomes a project
    if it is none yet. It gets the next number that neither the ledger nor a branch has. The same description again,
    while that protocol has not ended, makes no second one, unless it is given a --name.

    With --run everything happens at once: an engine plans it on a branch of its own; each step is carried out in a
    workspace of its own, checked by the repository's checks and reviewed as protocols.reviewer says; what passes is
    committed and pushed, with a draft pull request where there is a forge; CI is waited for. Ctrl-C pauses it, and
    `ratchet protocol resume` resumes it.

    Exits with 0 when what was asked for is done: without --run the protocol exists, with --run it is completed (with
    --manual: planned). A protocol that is blocked or still waits for CI is 1, misuse 2, a missing engine 3, Ctrl-C 130.
    """
    text = given_text(description, file, most_bytes=_MOST_BYTES)
    if not text.strip():
        raise Misuse("the description is empty", hint="say what is to be changed")
    if detach and not running:
        raise Misuse("--detach needs --run", hint="without --run nothing is begun anyway")
    where = find_top(Path.cwd()) if project is None else project
    loaded = session.load()
    write_initial(loaded.home)
    with foreground(loaded) as here:
        reviewer = how["reviewer"] if how["reviewer"] not in REVIEWER_POLICIES else None
        _check_engines(here, how["engine"], reviewer, running=running)
        if running:
            named = {"engine": how["engine"], "model": how["model"], "reviewer": reviewer}
            here.check(partial(check_new, here.runtime, **named), detach=detach)
        found = chosen_project(session, here, where, base=base)
        if name is None:
            _require_new(here, found, text)
        if project is None and not session.json and (outside := left_out(Path.cwd())):
            note(f"The change starts from {base or found.base_branch}: {one_line(outside)}.")
        chosen = set_up(session, here, found.id)
        if running:
            require_set_up(here, chosen)
        run_id = _create(here, chosen, text, name, base=base, **how)
        with here.ledger.write(actor="cli") as tx:
            before = last_id(tx.connection)
            if running:
                start_protocol(tx, here.runtime, run_id)
            made = get_protocol(tx, run_id)
        told = f"Protocol {run_id}, {made.name}, of {chosen.name}"
        if not running:
            confirm(
                session,
                protocol_record(made),
                f"{told} is made; `ratchet protocol start {run_id}` plans it and carries it out.",
            )
            return None
        if detach:
            leave_to_workers(session, here.ledger, protocol_record(made), f"{told} waits for a worker.")
            return None
        return work_on_protocol(session, here, run_id, made.name, wait=not no_wait, after=before)


def _require_new(here: Foreground, project: Project, description: str) -> None:
    """Raises `Conflict` for what was asked for before and has not ended, as after a process that was killed."""
    with here.ledger.read() as tx:
        unfinished = list_protocols(tx, project_id=project.id, unfinished=True, limit=_UNFINISHED)
    for each in unfinished:
        if (each.description or "").strip() == description.strip():
            number = each.run_id
            command = "start" if each.status in (RunStatus.PENDING, RunStatus.PLANNED) else "resume"
            raise Conflict(
                f"protocol {number}, {each.name}, is to do the same and has not ended: it is {each.status}",
                hint=f"`ratchet protocol {command} {number}` {command}s it, `ratchet protocol cancel {number}` ends "
                "it; with --name NNNN-TASK another one is made",
            )


def _check_engines(here: Foreground, *named: str | None, running: bool) -> None:
    """Whoever is named must be there before anything is made; and whoever plans, if that comes next."""
    around = EngineContext(here.runtime.settings, here.runtime.home, os.environ)
    for name in filter(None, named):
        open_engine(name, around)
    if running:
        settings = here.runtime.settings.protocols
        for usual in (settings.planner, named[0] or settings.engine):
            open_engine(usual, around)


def _create(
    here: Foreground,
    project: Project,
    description: str,
    name: str | None,
    *,
    base: str | None,
    manual: bool,
    engine: str | None,
    model: str | None,
    reviewer: str | None,
    simulated: bool,
) -> int:
    defaults = {"execute": engine, "executeModel": model, "qa": reviewer}
    chosen = {key: value for key, value in defaults.items() if value is not None}

    def create(tx: Transaction, called: str) -> int:
        return create_protocol(
            tx,
            here.runtime,
            project.id,
            called,
            base_branch=base,
            description=description,
            automatic=False if manual else None,
            simulated=simulated,
            template_config={"template": {"engineDefaults": chosen}} if chosen else None,
        )

    if name is not None:
        with here.ledger.write(actor="cli") as tx:
            return create(tx, name)
    return create_described(
        here.runtime,
        project,
        description,
        create,
        write=lambda: here.ledger.write(actor="cli"),
        base_branch=base,
    )


@foreground_command(
    operations.start,
    check=check_existing,
    examples=[
        "ratchet protocol start 7",
        "ratchet protocol start 0007-add-login --project shop",
        "ratchet protocol start 7 --detach",
    ],
    see=["protocol show", "protocol resume"],
)
def start(call: CliCall, protocol_id: int) -> object:
    """Plan a protocol, or carry out the plan that it has.

    The work is done here until it stops; Ctrl-C pauses it. A pending, planned or paused protocol can be started,
    and one whose planning was blocked.

    Exits with 0 when the protocol is completed (or planned, if its steps are started by hand), 1 when it is blocked or
    waits for CI, 3 when an engine is missing.
    """
    return operations.begin(call, protocol_id)


@foreground_command(
    operations.resume,
    check=check_resumed,
    examples=[
        "ratchet protocol resume 7",
        "ratchet protocol resume 7 --no-wait",
        "ratchet protocol resume 0007-add-login --detach",
    ],
    see=["protocol retry", "protocol show"],
)
def resume(call: CliCall, protocol_id: int) -> object:
    """Resume a protocol that was paused, blocked or cut off, here and now.

    Steps that were blocked are done again; one that has failed is tried again by `ratchet protocol retry` only. If a
    step waits for CI, the forge is asked for its checks until they have spoken.
    """
    with call.read() as tx:
        under_way = get_protocol(tx, protocol_id).status in UNDER_WAY
    if not under_way:
        return operations.begin_again(call, protocol_id)
    # One whose process was killed still counts as running: it only needs a worker.
    with call.write() as tx:
        return wake(tx, call.runtime, protocol_id)


@foreground_command(
    operations.run_next,
    check=check_next,
    examples=["ratchet protocol run-next 7", "ratchet protocol run-next 0007-add-login --detach"],
    see=["step run", "protocol retry"],
)
def run_next(call: CliCall, protocol_id: int) -> object:
    """Run the first step that waits, is blocked or has failed.

    For protocols whose steps are started by hand. Exits with 0 when that step is completed.
    """
    return operations.begin_next(call, protocol_id)


@foreground_command(
    operations.retry,
    check=check_retried,
    examples=["ratchet protocol retry 7", "ratchet protocol retry 0007-add-login --detach"],
    see=["protocol resume", "step run"],
)
def retry(call: CliCall, protocol_id: int) -> object:
    """Try the last step that failed or is blocked once more.

    It begins again from the branch, and is allowed as many fixes as before. Exits with 0 when that step is completed.
    """
    return operations.begin_retry(call, protocol_id)


@foreground_command(
    operations.open_pr,
    done=lambda found: found["pull_request"] is not None,
    waits=False,
    examples=["ratchet protocol open-pr 7", "ratchet protocol open-pr 0007-add-login --detach"],
)
def open_pr(call: CliCall, protocol_id: int) -> object:
    """Push the branch of a protocol and open its pull request.

    Also where protocols.push or protocols.pull_requests are off. One that there is already stays, with its
    description rewritten. Exits with 0 when there is a pull request.
    """
    return operations.open_pr(call, protocol_id)
