"""Asking people about a project, and resuming once they have answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ratchet.kernel import Conflict, Misuse, RunStatus, StepStatus
from ratchet.ledger import Event, EventFilter, Run, Transaction, change_step
from ratchet.ledger import events as log
from ratchet.ledger.questions import (
    Clarification,
    add_clarification,
    find_clarification,
    get_clarification,
    list_blockers,
    list_blockers_of_run,
    list_clarifications,
    record_answer,
)
from ratchet.ledger.runs import get_run, get_step, list_runs, list_steps
from ratchet.projects.registration import apply_answer, check_answer
from ratchet.runtime import Runtime
from ratchet.runtime.runs import carry_again, requeue_run

__all__ = [
    "AppliesTo",
    "Clarification",
    "answer",
    "ask",
    "get_clarification",
    "list_clarifications",
    "recommended_of",
    "waits_for_answers",
]

AppliesTo = Literal["onboarding", "planning", "execution", "qa"]
_APPLIES_TO = ("onboarding", "planning", "execution", "qa")
_LONGEST_KEY = 100
_MOST_QUESTIONS = 1000
# What says that a run, or a step of it, is blocked by questions; and what begins a stretch of work after that.
SETUP_BLOCKED = "setup_blocked"
_STEP_BLOCKED = "execution_blocked_clarifications"
_BLOCKED = (SETUP_BLOCKED, "planning_blocked_clarifications", _STEP_BLOCKED, "qa_blocked_clarifications")
_BEGUN = ("run.running", "run.planning")
_WAITING = (RunStatus.BLOCKED, RunStatus.RUNNING)


def ask(
    tx: Transaction,
    project_id: int,
    key: str,
    question: str,
    *,
    options: Sequence[Any] | None = None,
    recommended: Any = None,
    applies_to: AppliesTo = "onboarding",
    blocking: bool = False,
    run_id: int | None = None,
    step_id: int | None = None,
) -> Clarification:
    """A question about a project, a run of it, or a step of that. Asked again, it is the one that there is."""
    if not key or len(key) > _LONGEST_KEY or not key.isprintable():
        raise Misuse(f"{key[:_LONGEST_KEY]!r} cannot be the key of a question")
    if applies_to not in _APPLIES_TO:
        raise Misuse(
            f"a question cannot apply to {applies_to!r}", hint=f"use one of: {', '.join(_APPLIES_TO)}"
        )
    if step_id is not None:
        run_id = get_step(tx, step_id).run_id
    if run_id is not None and get_run(tx, run_id).project_id != project_id:
        raise Misuse(f"run {run_id} is not one of project {project_id}")
    made = add_clarification(
        tx,
        project_id,
        key,
        question=question,
        options=None if options is None else list(options),
        recommended=recommended,
        applies_to=applies_to,
        blocking=blocking,
        run_id=run_id,
        step_id=step_id,
    )
    if made is None:
        found = find_clarification(tx, project_id, key, run_id=run_id, step_id=step_id)
        assert found is not None
        return found
    _event(tx, "clarification_asked", made, question, {"blocking": blocking, "applies_to": applies_to})
    return made


def answer(
    tx: Transaction, runtime: Runtime, clarification_id: int, answer: Any, *, by: str
) -> Clarification:
    """Write an answer down, do what it says, and resume the runs that waited for it and for nothing else.

    Raises `Misuse` for an answer that cannot be meant, `Conflict` when there is one already.
    """
    _lock(tx, get_clarification(tx, clarification_id).project_id)
    asked = get_clarification(tx, clarification_id)
    if not asked.open:
        raise Conflict(f"clarification {asked.key!r} was answered already, by {asked.answered_by}")
    said = check_answer(tx, asked, answer)
    record_answer(tx, clarification_id, said, by=by)
    _event(
        tx, "clarification_answered", asked, f"{asked.key} was answered by {by}", {"answer": said, "by": by}
    )
    apply_answer(tx, asked, said)
    _go_on(tx, runtime, asked)
    return get_clarification(tx, clarification_id)


def recommended_of(tx: Transaction, project_id: int) -> list[Clarification]:
    """The open questions about a project and its protocols that have a recommended answer."""
    every = list_clarifications(tx, project_id=project_id, open_only=True, limit=_MOST_QUESTIONS)
    return [each for each in every if each.recommended is not None]


def waits_for_answers(
    tx: Transaction,
    project_id: int,
    applies_to: AppliesTo,
    run_id: int | None = None,
    step_id: int | None = None,
) -> list[Clarification]:
    """`list_blockers` for a transaction that blocks on them: until it ends, none can be answered.

    A caller that looked before must look again so, and resume if nothing is left: an answer that comes in between would
    find nothing blocked yet, and would resume nothing.
    """
    _lock(tx, project_id)
    return list_blockers(tx, project_id, applies_to, run_id=run_id, step_id=step_id)


def _lock(tx: Transaction, project_id: int) -> None:
    """One at a time answers or blocks: the last of two answers must see the first, and a run that is blocked both."""
    tx.lock_keys(f"clarifications:{project_id}")


def _go_on(tx: Transaction, runtime: Runtime, asked: Clarification) -> None:
    """Resume the runs that an answer was the last thing to wait for."""
    if asked.run_id is not None:
        _release(tx, runtime, get_run(tx, asked.run_id))
        return
    for status in _WAITING:
        before: int | None = None
        while page := list_runs(tx, status=status, project_id=asked.project_id, before=before):
            before = page[-1].id
            for run in page:
                _release(tx, runtime, run)


def _release(tx: Transaction, runtime: Runtime, run: Run) -> None:
    """Queue blocked steps again, and resume the run if it is blocked too: others of its steps may still run."""
    if run.status not in _WAITING:
        return
    began = max((each.id for each in _newest(tx, run.id, *_BEGUN)), default=0)
    blocks = [each for each in _newest(tx, run.id, *_BLOCKED) if each.id > began]
    stopped = _newest(tx, run.id, "run.blocked")
    planning = bool(stopped) and stopped[0].data["from"] == RunStatus.PLANNING
    if not blocks or list_blockers_of_run(tx, run.id, _phases(blocks, planning=planning)):
        return
    for step in list_steps(tx, run.id):
        told = log.latest(tx.connection, where=EventFilter(step_id=step.id, type=_STEP_BLOCKED), limit=1)
        if step.status is StepStatus.BLOCKED and told and told[0].id > began:
            change_step(tx, step.id, StepStatus.PENDING, expected=(StepStatus.BLOCKED,), reason="answered")
    if run.status is RunStatus.RUNNING:
        carry_again(tx, runtime, run.id)
        return
    requeue_run(tx, runtime, run.id, to=RunStatus.PLANNING if planning else RunStatus.RUNNING)


def _newest(tx: Transaction, run_id: int, *types: str) -> list[Event]:
    """The newest event of a run of each type that it has."""
    pages = (
        log.latest(tx.connection, where=EventFilter(run_id=run_id, type=each), limit=1) for each in types
    )
    return [event for page in pages for event in page]


def _phases(blocks: Sequence[Event], *, planning: bool) -> tuple[str, ...]:
    """What a blocked run needs answers for before it continues."""
    if any(each.type == SETUP_BLOCKED for each in blocks):
        return ("onboarding",)
    return ("planning",) if planning else ("planning", "execution", "qa")


def _event(tx: Transaction, type: str, asked: Clarification, message: str, data: dict[str, Any]) -> None:
    tx.event(
        type,
        project_id=asked.project_id,
        run_id=asked.run_id,
        step_id=asked.step_id,
        message=message,
        data={"clarification": asked.id, "key": asked.key, **data},
    )
