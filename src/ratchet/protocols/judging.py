"""Judging what a step has made once more, without a new session of its author."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ratchet.kernel import Conflict, Outcome, StateChanged
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.ledger.stages import stages_of_step
from ratchet.loop import RECORDED, Attempted
from ratchet.protocols.baseline import environments_of, red_checks
from ratchet.protocols.choosing import choose
from ratchet.protocols.qa import QaJudge, judge_step_commit, qa_judge
from ratchet.protocols.qa.reviewer import PERSON, author_of
from ratchet.protocols.stream import Blocked, Stream
from ratchet.runtime.attempts import ENDED


def judge_for(
    stream: Stream, step: ProtocolStep, *, base: str, author: str | None, model: str | None = None
) -> QaJudge:
    """The judge of a step's commit. Raises `Blocked` when it cannot be made, before anything is spent.

    Without an author it is a person's work. `model` is the author's, if it is known; else the one that the step would
    be carried out with.
    """
    choice = choose(stream.job.runtime.settings, stream.project, stream.protocol, step)
    return qa_judge(
        settings=stream.job.runtime.settings,
        surroundings=stream.surroundings,
        project=stream.project,
        protocol=stream.protocol,
        step=step,
        repository=stream.clone.repository,
        base=base,
        author=author_of(choice, author, model, stream.surroundings) if author else PERSON,
        feedback=(step.runtime_state or {}).get("feedback") or "",
        red=red_checks(stream),
        environments=environments_of(stream),
    )


async def judge_again(stream: Stream, step: ProtocolStep) -> tuple[Attempted, dict[str, str]]:
    """The verdict on the newest commit of the step, kept if it passes and fits, and the versions of the prompts."""
    last = await asyncio.to_thread(_last, stream, step)
    repository = stream.clone.repository
    head = await asyncio.to_thread(repository.resolve, stream.protocol.ref)
    commit = last.get("commit") or step.commit or head
    base = await asyncio.to_thread(_base, stream, last, head, commit)
    author = (step.runtime_state or {}).get("author")
    session = last.get("session", {})
    judge = await asyncio.to_thread(
        judge_for, stream, step, base=base, author=author, model=session.get("model")
    )
    judged = await judge_step_commit(
        stream.job, step, repository, judge, commit=commit, base=base, attempt_id=last.get("attempt_id")
    )
    recorded = session.get("simulated") or judged.verdict.simulated
    outcome, reason = judged.verdict.outcome, judged.verdict.reason
    if judged.verdict.passed and recorded and not stream.protocol.simulated:
        outcome, reason = Outcome.ERROR, RECORDED
    elif judged.verdict.passed and not await asyncio.to_thread(_keep, stream, head, commit):
        outcome = Outcome.FAILED
    done = Attempted(
        attempt_id=last.get("attempt_id", 0),
        kept=outcome is Outcome.PASSED,
        outcome=outcome,
        reason=reason,
        incumbent=base,
        commit=commit,
        verdict=judged.verdict,
        session=session,
    )
    return done, judge.prompt_versions


def _last(stream: Stream, step: ProtocolStep) -> Mapping[str, Any]:
    """The end of the last attempt at it; empty if there was none."""
    with stream.job.ledger.read() as tx:
        ended: list[Mapping[str, Any]] = stages_of_step(tx, step.step_id, ENDED)
    return ended[-1] if ended else {}


def _base(stream: Stream, last: Mapping[str, Any], head: str, commit: str) -> str:
    """The branch before the step: where it is now, or where it was when the commit was kept."""
    repository = stream.clone.repository
    if not repository.is_ancestor(commit, stream.protocol.ref):
        return head
    if last.get("commit") == commit and last.get("incumbent"):
        return str(last["incumbent"])
    [entry] = repository.log(commit, limit=1)
    if not entry.parents:
        raise Blocked("there is nothing to judge: the branch has no commit of its own", event="qa_blocked")
    return entry.parents[0]


def _keep(stream: Stream, head: str, commit: str) -> bool:
    repository = stream.clone.repository
    if repository.is_ancestor(commit, stream.protocol.ref):
        return True
    if not repository.is_ancestor(head, commit):
        return False
    try:
        repository.advance(stream.protocol.ref, commit, expected=head)
    except (StateChanged, Conflict):
        return False
    return True
