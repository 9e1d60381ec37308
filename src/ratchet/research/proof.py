"""The evidence of a kept trial, as artifacts: its diff and its improvement certificate."""

from __future__ import annotations

from ratchet.kernel import Usage
from ratchet.ledger import Transaction
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.usage import total
from ratchet.research.campaign import Campaign
from ratchet.research.keeping import Champion, Decided, certificate, certificate_json


def store_proof(
    tx: Transaction, campaign: Campaign, trial: Trial, decided: Decided, champion: Champion, diff: str
) -> str:
    """Store both; the hash of the certificate."""
    task, run_id, attempt_id = campaign.task, campaign.run_id, trial.attempt_id
    put = campaign.job.ledger.artifacts.put
    stored = put(
        tx,
        diff.encode(errors="surrogateescape"),
        name=f"{trial.exp_id}.diff",
        media_type="text/x-diff",
        run_id=run_id,
        attempt_id=attempt_id,
    )
    proof = certificate(
        decided,
        champion=champion,
        rule=task.keep,
        direction=task.direction,
        noise=campaign.noise,
        trial=trial.number,
        parent=campaign.repository.resolve(f"{decided.commit}^"),
        diff_sha256=stored.sha256,
        evaluator=campaign.meter.hash,
        environment=campaign.meter.environment_facts(),
        usage=Usage() if attempt_id is None else total(tx, "attempt", attempt_id),
        session=attempt_id,
        started_at=trial.started_at,
        ended_at=tx.now,
    )
    return put(
        tx,
        certificate_json(proof),
        name=f"{trial.exp_id}-certificate.json",
        media_type="application/json",
        run_id=run_id,
        attempt_id=attempt_id,
    ).sha256
