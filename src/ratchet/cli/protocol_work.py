"""Working on a protocol or an onboarding in the foreground, and reporting its progress."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import Command, command
from ratchet.cli.foreground import INTERRUPTED, Foreground, existing_foreground
from ratchet.cli.operation import CliCall, parameters_of, values_of
from ratchet.cli.output import confirm, note, show_page
from ratchet.cli.params import detach_option, no_wait_option
from ratchet.cli.protocol_pages import print_overview
from ratchet.cli.words import lines, one_line
from ratchet.engines import Failure
from ratchet.forges import ForgeError
from ratchet.kernel import Conflict, Missing, RunStatus, shortened
from ratchet.ledger import Event, Ledger
from ratchet.ledger.events import last_id
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import get_protocol, get_protocol_step, list_protocol_steps
from ratchet.ledger.runs import get_run, list_steps
from ratchet.ledger.usage import list_sessions
from ratchet.projects.local import base_branch, free_name, project_at
from ratchet.projects.registration import register_project
from ratchet.protocols.ci import ask_forge
from ratchet.protocols.lookup import project_named
from ratchet.protocols.overview import overview
from ratchet.protocols.views import protocol_record, step_record
from ratchet.runtime import anybody_works
from ratchet.runtime.operations.jobs import AcceptedAnswer, StepAcceptedAnswer

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.ledger import Run
    from ratchet.ledger.protocols import ProtocolStep
    from ratchet.operations import Operation
    from ratchet.runtime import Runtime


def chosen_project(session: CliSession, here: Foreground, wanted: str | Path, *, base: str | None) -> Project:
    """The project of that name, or of the repository at that path, which becomes one and is set up if it is none."""
    if isinstance(wanted, str):
        with here.ledger.read() as tx:
            return project_named(tx, wanted)
    top = wanted
    with here.ledger.read() as tx:
        found = project_at(tx, top)
    if found is not None:
        return found
    with here.ledger.write(actor="cli") as tx:
        name = free_name(tx, top.name)
        number = register_project(
            tx, here.runtime, name=name, local_path=str(top), base_branch=base or base_branch(top)
        )
    if not session.json:
        note(f"{top} is project {number} now: {name}.")
    return set_up(session, here, number)


def set_up(session: CliSession, here: Foreground, project_id: int) -> Project:
    """Carry the onboarding of a project that has one under way; the project as it is then.

    One that is blocked stays so: what needs it will say so.
    """
    with here.ledger.read() as tx:
        project = get_project(tx, project_id)
        run = None if project.setup_run_id is None else get_run(tx, project.setup_run_id)
    if run is None or run.status.stands:
        return project
    ended = work_on_setup(session, here, run.id, project.name)
    if here.interrupted:
        raise KeyboardInterrupt
    if ended.status is not RunStatus.COMPLETED and not session.json:
        note(f"The onboarding of {one_line(project.name)} is {ended.status}: {lines(ended.reason or '')}")
    with here.ledger.read() as tx:
        return get_project(tx, project_id)


def require_set_up(here: Foreground, project: Project) -> None:
    """Raises `Conflict` for a project whose onboarding waits for somebody."""
    if project.setup_run_id is None:
        return
    with here.ledger.read() as tx:
        run = get_run(tx, project.setup_run_id)
    if run.status is not RunStatus.COMPLETED:
        raise Conflict(
            f"project {project.name!r} is not set up: its onboarding is {run.status}: {run.reason or 'queued'}",
            hint=f"`ratchet project show {project.id}` has the details; "
            f"`ratchet project onboard {project.id}` resumes it",
        )


Hear = Callable[[Event], None]

_SHOWN = 200
_PLAN = "plan"
# Of the moving line: what a message gets at least, and what the spinner and the dots take.
_LEAST, _AROUND = 10, 8
# What is told in other words by what comes before or after it.
_SILENT = {
    "approval_kept",
    "codemachine_step_completed",
    "open_pr_enqueued",
    "paused",
    "planning_enqueued",
    "qa_enqueued",
    "resumed",
    "setup_clarifications",
    "setup_completed",
    "setup_enqueued",
    "setup_started",
    "spec_validated",
    "step_completed",
    "step_enqueued",
}
_WORDS = {
    "ci_awaited": "waits for CI",
    "ci_failed": "CI failed it",
    "loop_decision": "goes back",
    "open_pr": "opened",
    "open_pr_failed": "no pull request",
    "open_pr_skipped": "no pull request",
    "planned": "planned",
    "pull_request_ready": "ready",
    "pull_request_updated": "up to date",
    "pushed": "pushed",
    "qa_failed": "did not pass",
    "qa_skipped_policy": "done",
    "setup_assets": "CI scripts",
    "step_execution_failed": "failed",
    "step_rebased": "brought onto the newest commit",
    "step_retry": "tried again",
}
# What may be found again at every step, and need not be told as often.
_ONCE = ("open_pr_failed", "open_pr_skipped", "step_started", "worktree_warning")


class Teller:
    """Says in a line what an event means. Names of steps are looked up when they are first met."""

    def __init__(self, ledger: Ledger, run_id: int) -> None:
        self._ledger, self._run_id = ledger, run_id
        self._names: dict[int, str] = {}
        self._said: set[str] = set()

    def line(self, event: Event) -> str | None:
        """A line about something that matters, or nothing."""
        message = one_line(event.message or "")
        if event.type == "attempt.started":
            name, number = self._name(event), _number(event)
            if number == 1 and name != _PLAN:
                return None
            text = f"{name}: try {number}" if number > 1 else "planning …"
        elif event.type == "step_fix":
            text = f"{self._name(event)}: goes back to its author"
        elif "." in event.type or event.type in _SILENT:
            return None
        else:
            text = self._sentence(event, message)
            if event.type in _ONCE and text in self._said:
                return None
            self._said.add(text)
        return shortened(text, _SHOWN)

    def at(self, event: Event) -> str | None:
        """What happens at the moment, for a line that moves."""
        name, message = self._name(event), one_line(event.message or "")
        if not message:
            return None
        return message if not name or message.startswith(name) else f"{name}: {message}"

    def _sentence(self, event: Event, message: str) -> str:
        name, words = self._name(event), _WORDS.get(event.type)
        if name and message.startswith(f"{name} "):
            message = message.removeprefix(f"{name} ")
        return ": ".join(filter(None, (name, words, message))) or event.type

    def _name(self, event: Event) -> str:
        if event.step_id is None:
            return ""
        if event.step_id not in self._names:
            with self._ledger.read() as tx:
                self._names = {step.id: step.name for step in list_steps(tx, self._run_id)}
        return one_line(self._names.get(event.step_id, ""))


@contextlib.contextmanager
def progress(ledger: Ledger, run_id: int, what: str, *, quiet: bool) -> Iterator[Hear]:
    """What is to be called with each event of the run."""
    teller = Teller(ledger, run_id)
    if quiet:
        yield lambda _event: None
    elif sys.stderr.isatty():
        with _moving(teller, what) as hear:
            yield hear
    else:
        yield lambda event: _line(teller, event)


def _line(teller: Teller, event: Event) -> None:
    told = teller.line(event)
    if told is not None:
        note(told)


@contextlib.contextmanager
def _moving(teller: Teller, what: str) -> Iterator[Hear]:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    with console.status(f"{escape(what)} …") as status:

        def hear(event: Event) -> None:
            told = teller.line(event)
            if told is not None:
                console.print(escape(told), soft_wrap=True)
            at = teller.at(event)
            if at is not None:
                room = max(_LEAST, console.width - len(what) - _AROUND)
                status.update(f"{escape(what)} … [dim]{escape(at[:room])}[/dim]")

        yield hear


def _number(event: Event) -> int:
    data: Mapping[str, Any] = event.data if isinstance(event.data, Mapping) else {}
    return int(data.get("number") or 1)


Overview = Mapping[str, Any]
# How often the forge is asked about checks.
_ASK_SECONDS = 10.0


def is_done(found: Overview) -> bool:
    """Whether a protocol has come as far as it goes by itself: completed, or planned if its steps wait for a person."""
    by_hand = not found["automatic"] and found["status"] in ("planned", "running")
    return found["status"] == RunStatus.COMPLETED or by_hand


def work_on_protocol(
    session: CliSession,
    here: Foreground,
    run_id: int,
    what: str,
    *,
    done: Callable[[Overview], bool] = is_done,
    wait: bool = True,
    after: int | None = None,
) -> int:
    """Work until it stops, tell what it has come to, and the exit code: 0 only if it is `done`.

    With `wait` the forge is asked for checks that a step waits for. What happened since the event `after` is told as
    well: a worker may have begun already.
    """
    waiting = _Waiting(here, run_id, wanted=wait, quiet=session.json)
    with progress(here.ledger, run_id, what, quiet=session.json) as hear:
        here.carry_jobs(run_id, hear, quiet=session.json, wait=waiting, after=after)
    with here.ledger.read() as tx:
        found = overview(tx, run_id)
        last = list_sessions(tx, run_id=run_id, limit=1)
    show_page(session, found, print_overview, found)
    if here.interrupted:
        return INTERRUPTED
    if done(found):
        return 0
    lacks = found["status"] == "blocked" and last and last[0].failure == Failure.MISSING
    return Missing.exit_code if lacks else 1


Act = Callable[..., object]


def foreground_command(
    operation: Operation[..., Any],
    *,
    check: Callable[[Runtime, int], None] | None = None,
    done: Callable[[Overview], bool] = is_done,
    waits: bool = True,
    **how: Any,
) -> Callable[[Act], Command]:
    """A command that takes what an operation on a protocol or a step takes, and carries the protocol until it stops.

    The function does what the operation does, once its engines were looked at: `check` does that here.
    """
    of_step = "step_id" in operation.parameters

    def make(act: Act) -> Command:
        @click.pass_obj
        def run(session: CliSession, /, detach: bool, no_wait: bool = True, **given: Any) -> int | None:
            with existing_foreground(session) as here:
                call = CliCall(session, here.ledger, here.runtime)
                values = values_of(operation, call, given)
                number: int = values["step_id" if of_step else "protocol_id"]
                with here.ledger.read() as tx:
                    step = get_protocol_step(tx, number) if of_step else None
                    protocol = get_protocol(tx, number if step is None else step.run_id)
                if check is not None:
                    here.check(partial(check, here.runtime, number), detach=detach)
                with here.ledger.read() as tx:
                    before = last_id(tx.connection)
                said, finished = _said(step, act(call, **values), done)
                if said and not session.json and not (step and detach):
                    note(f"{said}.")
                if not detach:
                    return work_on_protocol(
                        session,
                        here,
                        protocol.run_id,
                        protocol.name,
                        done=finished,
                        wait=not no_wait,
                        after=before,
                    )
                with here.ledger.read() as tx:
                    document = (
                        protocol_record(get_protocol(tx, number))
                        if step is None
                        else step_record(get_protocol_step(tx, number))
                    )
                ending = " waits for a worker." if step is None else f": {said}."
                leave_to_workers(session, here.ledger, document, f"Protocol {protocol.run_id}{ending}")
                return None

        for option in (detach_option, *([no_wait_option] if waits else [])):
            run = option(run)
        made = command(operation.name.rpartition(" ")[2], help=inspect.getdoc(act), **how)(run)
        made.params[:0] = parameters_of(operation)
        return made

    return make


def _said(
    step: ProtocolStep | None, answer: object, done: Callable[[Overview], bool]
) -> tuple[str | None, Callable[[Overview], bool]]:
    """What an action on a protocol or a step has begun, and when that is done."""
    if step is not None:
        said = answer.message if isinstance(answer, AcceptedAnswer) else f"{step.name} is approved"
        # Nothing that came after it may have stopped the protocol.
        return said, lambda found: _completed(found, step.step_id) and found["status"] != RunStatus.BLOCKED
    if isinstance(answer, StepAcceptedAnswer):
        return answer.message, lambda found: _completed(found, answer.step_id)
    return None, done


def _completed(found: Overview, step_id: int) -> bool:
    return all(each["status"] == "completed" for each in found["steps"] if each["id"] == step_id)


def work_on_setup(session: CliSession, here: Foreground, run_id: int, project: str) -> Run:
    """Work until an onboarding has ended or is blocked."""
    with progress(here.ledger, run_id, f"setting up {project}", quiet=session.json) as hear:
        return here.work_on(run_id, hear, quiet=session.json)


def leave_to_workers(session: CliSession, ledger: Ledger, document: Mapping[str, Any], text: str) -> None:
    """Say that something is queued, and who will do it."""
    confirm(session, document, text)
    note_workers(session, ledger)


def note_workers(session: CliSession, ledger: Ledger, here: str = "") -> None:
    """Say so if nobody works on this ledger: what is queued would wait for ever. `here` tells how to do it here."""
    with ledger.read() as tx:
        working = anybody_works(tx)
    if not working and not session.json:
        note(f"No worker runs on this ledger now: `ratchet worker` or `ratchet serve` does{here}.")


class _Waiting:
    """Whether CI may still speak. Asks the forge itself, since no webhook reaches a command."""

    def __init__(self, here: Foreground, run_id: int, *, wanted: bool, quiet: bool) -> None:
        self._here, self._run_id = here, run_id
        self._wanted, self._quiet = wanted, quiet
        self._asked: list[str | None] = []
        self._next = 0.0

    def __call__(self) -> bool:
        waiting = self._commits() if self._wanted else []
        if not waiting:
            return False
        if waiting == self._asked and time.monotonic() < self._next:
            return True
        try:
            asyncio.run(ask_forge(self._here.runtime, self._run_id, actor="cli"))
        except ForgeError as error:
            self._tell(error)
            return False
        self._asked, self._next = waiting, time.monotonic() + _ASK_SECONDS
        return True

    def _commits(self) -> list[str | None]:
        with self._here.ledger.read() as tx:
            return [each.commit for each in list_protocol_steps(tx, self._run_id) if each.awaits_ci]

    def _tell(self, error: ForgeError) -> None:
        if not self._quiet:
            note(f"The forge cannot be asked for checks: {one_line(str(error))}")
            if error.hint:
                note(f"hint: {lines(error.hint)}")
            note("A webhook to `ratchet serve` resumes it as well.")
