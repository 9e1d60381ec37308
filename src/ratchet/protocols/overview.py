"""A whole protocol as it is shown: its steps with how each has fared, what is asked, and what to do next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.kernel import RunStatus, StepStatus
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import get_protocol, list_protocol_steps
from ratchet.ledger.questions import list_blockers_of_run
from ratchet.ledger.runs import get_run, newest_attempts
from ratchet.operations import record
from ratchet.projects.operations import ClarificationAnswer
from ratchet.protocols.ci import ci_summary
from ratchet.protocols.views import protocol_record, step_record
from ratchet.runtime.job import unfinished_jobs
from ratchet.runtime.processes import is_cut_off

if TYPE_CHECKING:
    from ratchet.ledger import Attempt, Transaction
    from ratchet.ledger.protocols import Protocol, ProtocolStep
    from ratchet.ledger.questions import Clarification


_PHASES = ("planning", "execution", "qa")


def overview(tx: Transaction, run_id: int) -> dict[str, Any]:
    """Raises `NotFound`. `next` has commands, each with what it is for."""
    protocol = get_protocol(tx, run_id)
    steps = list_protocol_steps(tx, run_id)
    states: dict[str | None, str] = {
        each.commit: each.state for each in ci_summary(tx, protocol).commits if each.checks
    }
    questions = [] if protocol.status.final else list_blockers_of_run(tx, run_id, _PHASES)
    queued = bool(unfinished_jobs(tx, run_id))
    cut_off = queued and is_cut_off(tx, get_run(tx, run_id))
    project = get_project(tx, protocol.project_id)
    # That of a repository on this machine is a path.
    has_forge = project.remote is not None and not project.remote.startswith("/")
    tries = {each.step_id: each for each in newest_attempts(tx, run_id)}
    judged = [number for number, last in tries.items() if last.verdict is not None]
    commands = advice(
        protocol,
        steps,
        questions,
        judged=judged,
        queued=queued,
        cut_off=cut_off,
        has_forge=has_forge,
        checkout=project.local_path,
    )
    return {
        **protocol_record(protocol, brief=True),
        "project": project.name,
        "branch": protocol.name,
        "steps": [
            {
                **step_record(step),
                **_tried(tries.get(step.step_id)),
                "ci": "pending" if step.awaits_ci else states.get(step.commit),
            }
            for step in steps
        ],
        "questions": [record(ClarificationAnswer.of(each)) for each in questions],
        "queued": queued,
        "next": [{"command": each.command, "why": each.why} for each in commands],
    }


def _tried(last: Attempt | None) -> dict[str, Any]:
    """How often a step was tried, and what was said of the last try."""
    return {
        "attempts": 0 if last is None else last.number,
        "outcome": None if last is None or last.outcome is None else str(last.outcome),
        "verdict": None if last is None else last.verdict,
    }


_STOPPED = (StepStatus.FAILED, StepStatus.BLOCKED)


class NextCommand(NamedTuple):
    command: str
    why: str


def advice(
    protocol: Protocol,
    steps: Sequence[ProtocolStep],
    questions: Sequence[Clarification],
    *,
    judged: Collection[int],
    queued: bool,
    cut_off: bool,
    has_forge: bool,
    checkout: str | None,
) -> list[NextCommand]:
    """The likeliest first.

    `questions` are those that block, `judged` the steps whose last try came to a verdict, `queued` says whether a
    worker has something to do, and `cut_off` whether that is because its process died.
    """
    if not protocol.status.final and questions:
        return [_answer(protocol, each) for each in questions]
    if cut_off:
        why = "resume it: the process that worked on it is gone"
        return [NextCommand(f"ratchet protocol resume {protocol.run_id}", why)]
    if protocol.status is RunStatus.COMPLETED:
        return list(_completed(protocol, has_forge=has_forge, checkout=checkout))
    return list(_advice(protocol, steps, judged, queued=queued))


def _advice(
    protocol: Protocol, steps: Sequence[ProtocolStep], judged: Collection[int], *, queued: bool
) -> Iterator[NextCommand]:
    number = protocol.run_id
    match protocol.status:
        case RunStatus.PENDING:
            yield NextCommand(f"ratchet protocol start {number}", "plan it" if not steps else "carry it out")
        case RunStatus.PLANNED if protocol.automatic:
            yield NextCommand(f"ratchet protocol start {number}", "carry out the plan")
        case RunStatus.PLANNED:
            yield NextCommand(f"ratchet protocol run-next {number}", "run the first step")
        case RunStatus.PAUSED:
            yield NextCommand(f"ratchet protocol resume {number}", "resume it")
        case RunStatus.BLOCKED:
            yield from _unblocked(protocol, steps, judged)
        case RunStatus.PLANNING | RunStatus.RUNNING if queued:
            yield NextCommand(f"ratchet events --run {number} --follow", "watch it")
        case RunStatus.RUNNING:
            yield from _idle(protocol, steps)


def _completed(protocol: Protocol, *, has_forge: bool, checkout: str | None) -> Iterator[NextCommand]:
    if protocol.worktree_path is not None and protocol.base_commit is not None:
        where = f"git -C {shlex.quote(protocol.worktree_path)}"
        yield NextCommand(f"{where} log -p {protocol.base_commit[:12]}..", "look at what was done")
    if has_forge and protocol.pull_request is None:
        yield NextCommand(f"ratchet protocol open-pr {protocol.run_id}", "open a pull request")
    elif checkout is not None and protocol.pull_request is None:
        merge = f"git -C {shlex.quote(checkout)} merge {shlex.quote(protocol.name)}"
        yield NextCommand(merge, f"merge it, with {protocol.base_branch} checked out there")


def _unblocked(
    protocol: Protocol, steps: Sequence[ProtocolStep], judged: Collection[int]
) -> Iterator[NextCommand]:
    number = protocol.run_id
    if not steps:
        yield NextCommand(f"ratchet protocol start {number}", "once that is fixed: plan it again")
        return
    stopped = [each for each in steps if each.status in _STOPPED]
    if not stopped:
        yield NextCommand(f"ratchet protocol resume {number}", "once that is fixed: resume")
        return
    last = stopped[-1]
    place = f"{number}/{last.step_index:02d}"
    yield NextCommand(f"ratchet protocol log {number} --step {last.step_index:02d}", "see what happened")
    yield NextCommand(f"ratchet protocol retry {number}", f"try {last.name} again")
    if last.step_id in judged:
        yield NextCommand(
            f"ratchet step approve {place}", "take its newest commit although the judges did not"
        )


def _idle(protocol: Protocol, steps: Sequence[ProtocolStep]) -> Iterator[NextCommand]:
    number = protocol.run_id
    if any(each.awaits_ci for each in steps):
        yield NextCommand(
            f"ratchet protocol resume {number}", "ask the forge for the checks, and wait for them"
        )
    elif not protocol.automatic and any(each.status is StepStatus.PENDING for each in steps):
        yield NextCommand(f"ratchet protocol run-next {number}", "run the next step")
    else:
        yield NextCommand(f"ratchet protocol resume {number}", "resume here")


def _answer(protocol: Protocol, asked: Clarification) -> NextCommand:
    said = "ANSWER" if asked.recommended is None else _quoted(asked.recommended)
    return NextCommand(f"ratchet project answer {protocol.project_id} {asked.id} {said}", asked.question)


def _quoted(value: object) -> str:
    return shlex.quote(value if isinstance(value, str) else json.dumps(value))
