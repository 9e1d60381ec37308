"""Writing a verdict's evidence into the ledger: reports, and the sessions of engines that reviewed."""

from __future__ import annotations

from ratchet.engines.transcript import record_session
from ratchet.judges.judge import Judged
from ratchet.ledger import ArtifactStore, Spender, Transaction


def record_judged(tx: Transaction, artifacts: ArtifactStore, judged: Judged, spender: Spender) -> None:
    """Keep everything that the verdict stands on. The verdict itself is the caller's to record."""
    for report in judged.reports:
        artifacts.put(
            tx,
            report.content,
            name=report.name,
            media_type=report.media_type,
            run_id=spender.run_id,
            attempt_id=spender.attempt_id,
        )
    for session in judged.sessions:
        record_session(tx, artifacts, session, "reviewer", spender)
