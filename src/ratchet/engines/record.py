"""Writing a session that has ended into the ledger: its transcript, its row, and that it was simulated."""

from __future__ import annotations

from ratchet.engines.failure import SessionFailed
from ratchet.engines.session import Session
from ratchet.ledger import ArtifactStore, Spender, Transaction
from ratchet.ledger.runs import mark_simulated
from ratchet.ledger.sessions import add_session


def record_session(
    tx: Transaction,
    artifacts: ArtifactStore,
    session: Session,
    role: str,
    spender: Spender,
    failed: SessionFailed | None = None,
    *,
    prompt: str | None = None,
    prompt_file: str | None = None,
) -> int:
    """The number of the session. Its usage is charged by the listener that heard it.

    What it was asked is kept beside its transcript, where it is given, as `prompt_file` or by the name of its role.
    """
    if prompt is not None:
        artifacts.put(
            tx,
            prompt.encode("utf-8", "replace"),
            name=prompt_file or f"{role}-prompt.md",
            media_type="text/markdown",
            run_id=spender.run_id,
            attempt_id=spender.attempt_id,
        )
    transcript = None
    if session.transcript:
        transcript = artifacts.put(
            tx,
            session.transcript,
            name=f"{role}-transcript.jsonl",
            media_type="application/jsonl",
            run_id=spender.run_id,
            attempt_id=spender.attempt_id,
        ).sha256
    if session.simulated and spender.attempt_id is not None:
        mark_simulated(tx, spender.attempt_id)
    return add_session(
        tx,
        role=role,
        engine=session.engine,
        model=session.model,
        usage=session.usage,
        run_id=spender.run_id,
        attempt_id=spender.attempt_id,
        failure=None if failed is None else str(failed.failure),
        reason=None if failed is None else str(failed),
        resume=session.resume,
        transcript=transcript,
        simulated=session.simulated,
    )
