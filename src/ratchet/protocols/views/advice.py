"""What a person can do next with a protocol, as commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ratchet.kernel import RunStatus, StepStatus

if TYPE_CHECKING:
    from ratchet.ledger.clarifications import Clarification
    from ratchet.ledger.protocol_steps import ProtocolStep
    from ratchet.ledger.protocols import Protocol

_STOPPED = (StepStatus.FAILED, StepStatus.BLOCKED)


class Advice(NamedTuple):
    command: str
    why: str


def advice(
    protocol: Protocol,
    steps: Sequence[ProtocolStep],
    questions: Sequence[Clarification],
    *,
    judged: Collection[int],
    in_line: bool,
    has_forge: bool,
) -> list[Advice]:
    """The likeliest first.

    `questions` are those that block, `judged` the steps whose last try came to a verdict, and `in_line` says whether a
    worker has something to do.
    """
    if not protocol.status.final and questions:
        return [_answer(protocol, each) for each in questions]
    if protocol.status is RunStatus.COMPLETED:
        return list(_completed(protocol, has_forge=has_forge))
    return list(_advice(protocol, steps, judged, in_line=in_line))


def _advice(
    protocol: Protocol, steps: Sequence[ProtocolStep], judged: Collection[int], *, in_line: bool
) -> Iterator[Advice]:
    number = protocol.run_id
    match protocol.status:
        case RunStatus.PENDING:
            yield Advice(f"ratchet protocol start {number}", "plan it" if not steps else "carry it out")
        case RunStatus.PLANNED if protocol.automatic:
            yield Advice(f"ratchet protocol start {number}", "carry out the plan")
        case RunStatus.PLANNED:
            yield Advice(f"ratchet protocol run-next {number}", "run the first step")
        case RunStatus.PAUSED:
            yield Advice(f"ratchet protocol resume {number}", "go on")
        case RunStatus.BLOCKED:
            yield from _unblocked(protocol, steps, judged)
        case RunStatus.PLANNING | RunStatus.RUNNING if in_line:
            yield Advice(f"ratchet events --run {number} --follow", "watch it")
        case RunStatus.RUNNING:
            yield from _idle(protocol, steps)


def _completed(protocol: Protocol, *, has_forge: bool) -> Iterator[Advice]:
    if protocol.worktree_path is not None and protocol.base_commit is not None:
        where = f"git -C {shlex.quote(protocol.worktree_path)}"
        yield Advice(f"{where} log -p {protocol.base_commit[:12]}..", "look at what was done")
    if has_forge and protocol.pull_request is None:
        yield Advice(f"ratchet protocol open-pr {protocol.run_id}", "open a pull request")


def _unblocked(
    protocol: Protocol, steps: Sequence[ProtocolStep], judged: Collection[int]
) -> Iterator[Advice]:
    number = protocol.run_id
    if not steps:
        yield Advice(f"ratchet protocol start {number}", "once that is mended: plan it again")
        return
    stopped = [each for each in steps if each.status in _STOPPED]
    if not stopped:
        yield Advice(f"ratchet protocol resume {number}", "once that is mended: go on")
        return
    last = stopped[-1]
    place = f"{number}/{last.step_index:02d}"
    yield Advice(f"ratchet protocol log {number} --step {last.step_index:02d}", "see what happened")
    yield Advice(f"ratchet protocol retry {number}", f"try {last.name} again")
    if last.step_id in judged:
        yield Advice(f"ratchet step approve {place}", "take its newest commit although the judges did not")


def _idle(protocol: Protocol, steps: Sequence[ProtocolStep]) -> Iterator[Advice]:
    number = protocol.run_id
    if any(each.awaits_ci for each in steps):
        yield Advice(f"ratchet protocol resume {number}", "ask the forge for the checks, and wait for them")
    elif not protocol.automatic and any(each.status is StepStatus.PENDING for each in steps):
        yield Advice(f"ratchet protocol run-next {number}", "run the next step")
    else:
        yield Advice(f"ratchet protocol resume {number}", "go on here")


def _answer(protocol: Protocol, asked: Clarification) -> Advice:
    said = "ANSWER" if asked.recommended is None else _quoted(asked.recommended)
    return Advice(f"ratchet project answer {protocol.project_id} {asked.id} {said}", asked.question)


def _quoted(value: object) -> str:
    return shlex.quote(value if isinstance(value, str) else json.dumps(value))
