"""The evidence of a trial: its certificate, checked again, its diff, and the run's report with both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ratchet.kernel import NotFound
from ratchet.ledger import Ledger, Run, Transaction
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import find_trial
from ratchet.research.adapter import measured_columns
from ratchet.research.decision import check_certificate
from ratchet.research.views import Leaderboard, leaderboard, report
from ratchet.research.views.trials import TOP
from ratchet.workspaces import Repository


def columns_of(run: Run) -> tuple[str, ...]:
    """What its task names, or, of an imported run, what its file has."""
    imported = run.spec.get("imported")
    if imported is not None:
        return measured_columns(imported["columns"], imported["score_field"])
    return tuple(run.spec.get("columns", ()))


def leaderboard_of(tx: Transaction, run_id: int, *, limit: int = TOP) -> Leaderboard:
    """The leaderboard with the run's own columns."""
    return leaderboard(tx, run_id, limit=limit, columns=columns_of(get_run(tx, run_id)))


def evidence_of(ledger: Ledger, trial: Trial) -> dict[str, Any]:
    """The certificate of a kept trial, and what in it contradicts itself."""
    if trial.certificate is None:
        return {"certificate_content": None, "certificate_problems": []}
    content = json.loads(ledger.artifacts.read(trial.certificate))
    return {"certificate_content": content, "certificate_problems": check_certificate(content)}


def read_diff(directory: Path, trial: Trial, *, since: str | None = None) -> str:
    """How a trial's files differ from those of its parent, or of the commit `since`. Bytes that are no text are marked.

    Raises `NotFound` when only the row of the trial is known.
    """
    path = directory / "repo.git"
    if trial.commit is None or not path.exists():
        raise NotFound("commit of trial", trial.exp_id)
    if trial.parent is None and since is None:
        return ""
    with Repository.open(path) as repository:
        patch = repository.diff(since or f"{trial.commit}^", trial.commit)
    return patch.encode(errors="surrogateescape").decode(errors="replace")


def full_report(ledger: Ledger, tx: Transaction, run_id: int, directory: Path) -> str:
    """The page of a run with what the best changed since the baseline and its certificate, as far as they are here."""
    standing = get_standing(tx, run_id)
    best = None if standing.best is None else find_trial(tx, run_id, standing.best)
    diff = certificate = None
    if best is not None:
        certificate = evidence_of(ledger, best)["certificate_content"]
        diff = _since_baseline(directory, best, find_trial(tx, run_id, 0))
    columns = columns_of(get_run(tx, run_id))
    return report(tx, run_id, diff=diff, certificate=certificate, columns=columns)


def _since_baseline(directory: Path, best: Trial, first: Trial | None) -> str | None:
    """What the best has changed in all. Of an imported run, rows may be all that there is."""
    if first is None or first.commit is None:
        return None
    try:
        return read_diff(directory, best, since=first.commit)
    except NotFound:
        return None
