"""The evidence of a kept trial: its diff and its improvement certificate."""

from __future__ import annotations

from typing import NamedTuple

from ratchet.judges import Report
from ratchet.kernel import Usage
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.usage import total
from ratchet.research.campaign import Campaign
from ratchet.research.keeping import Champion, Decided, certificate, certificate_json


class Proof(NamedTuple):
    diff: Report
    certificate: Report


def proof_of(campaign: Campaign, trial: Trial, decided: Decided, champion: Champion, diff: str) -> Proof:
    """Both, as they are stored."""
    task, attempt_id = campaign.task, trial.attempt_id
    change = Report(f"{trial.exp_id}.diff", diff.encode(errors="surrogateescape"), "text/x-diff")
    with campaign.job.ledger.read() as tx:
        usage, now = Usage() if attempt_id is None else total(tx, "attempt", attempt_id), tx.now
    proof = certificate(
        decided,
        champion=champion,
        rule=task.keep,
        direction=task.direction,
        noise=campaign.noise,
        trial=trial.number,
        parent=campaign.repository.resolve(f"{decided.commit}^"),
        diff_sha256=change.sha256,
        evaluator=campaign.meter.hash,
        environment=campaign.meter.environment_facts(),
        usage=usage,
        session=attempt_id,
        started_at=trial.started_at,
        ended_at=now,
    )
    return Proof(change, Report(f"{trial.exp_id}-certificate.json", certificate_json(proof)))
