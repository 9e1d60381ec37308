"""Letting an engine change a copy of a version, and keeping what it made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ratchet.agents.changing.staging import last_change, prepare
from ratchet.agents.changing.taking import Decision, take
from ratchet.agents.changing.work import Work
from ratchet.agents.contract import LOGS
from ratchet.agents.prompts import CREATED, DECIDED, asked, contract
from ratchet.agents.trees import git_files
from ratchet.engines import Request, SessionFailed
from ratchet.engines.listening import listener_for
from ratchet.engines.record import record_session
from ratchet.engines.retrying import propose
from ratchet.engines.session import SessionEvent
from ratchet.kernel import StepStatus
from ratchet.ledger import Transaction
from ratchet.runtime.attempts import OpenAttempt

PROPOSED = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """What a session came to. `commit` holds the files that it left, the states lie in the artifact store.

    `base_state` is the live state as the session was shown it; the first version has none. `seen` is the number of a
    change that is part of it.
    """

    decision: Decision
    bump: str | None
    summary: str
    commit: str | None
    base_state: str | None
    staged_state: str | None
    simulated: bool
    seen: int = 0


def proposed_of(opened: OpenAttempt) -> Proposed:
    data = opened.finished[PROPOSED]
    return Proposed(**{**data, "decision": Decision(data["decision"])})


async def hold_session(work: Work, opened: OpenAttempt, earlier: tuple[str, ...]) -> None:
    """One session in the staging directory; what it left is a commit and a checkpoint before anything else is done."""
    listener = listener_for(opened.job, opened.spender, work.engine.name, work.spec.get("model"))
    staging = work.place.staging(work.parent)
    seen = await asyncio.to_thread(last_change, work)
    before = await asyncio.to_thread(prepare, work, staging)
    guarded = git_files(staging)
    request = _request(work, opened, staging, earlier, listener.hear)
    try:
        with listener.listening():
            session = await propose(work.engine, request, tries=work.job.runtime.settings.engines.tries)
        made = await asyncio.to_thread(take, work, opened.id, staging, session, guarded, before)
    except SessionFailed as failed:
        with listener.settled(opened.job, failed.session.usage) as tx:
            record_session(
                tx, opened.artifacts, failed.session, "author", opened.spender, failed, prompt=request.prompt
            )
        raise
    work.passed("session ended")
    with listener.settled(opened.job, session.usage) as tx:
        record_session(tx, opened.artifacts, session, "author", opened.spender, prompt=request.prompt)
        states = {"base-state.json": before, "staged-state.json": made.state}
        kept = {name: _keep(tx, opened, name, state) for name, state in states.items()}
        proposed = Proposed(
            decision=made.decision,
            bump=made.answer.get("bump"),
            summary=made.summary,
            commit=made.commit,
            base_state=kept["base-state.json"],
            staged_state=kept["staged-state.json"],
            simulated=session.simulated,
            seen=seen,
        )
        opened.finish(tx, PROPOSED, asdict(proposed))
        opened.move_step(tx, StepStatus.NEEDS_QA)


def _keep(tx: Transaction, opened: OpenAttempt, name: str, state: bytes | None) -> str | None:
    if state is None:
        return None
    spender = opened.spender
    return opened.artifacts.put(
        tx,
        state,
        name=name,
        media_type="application/json",
        run_id=spender.run_id,
        attempt_id=spender.attempt_id,
    ).sha256


def _request(
    work: Work,
    opened: OpenAttempt,
    staging: Path,
    earlier: tuple[str, ...],
    listen: Callable[[SessionEvent], None],
) -> Request:
    schema = CREATED if work.base is None else DECIDED
    settings = work.job.runtime.settings.engines
    return Request(
        system=contract(),
        prompt=asked(
            work.spec["action"], work.agent.description, work.message, work.spec, earlier, work.settings
        ),
        workspace=staging,
        incidental=(LOGS,),
        model=work.spec.get("model"),
        output_schema=schema if work.engine.capabilities.structured_output else None,
        limits=opened.limits,
        deadline_seconds=min(work.settings.session_seconds, settings.deadline_seconds),
        listen=listen,
    )
