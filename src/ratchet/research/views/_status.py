"""Where a run stands, in one value: what `ratchet research status` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.kernel import Direction, TrialStatus, Usage, exp_id
from ratchet.ledger import usage as spending
from ratchet.ledger.research import Standing, get_standing
from ratchet.ledger.runs import Run, get_run
from ratchet.ledger.trial_pages import in_flight
from ratchet.ledger.trials import find_trial
from ratchet.research.views._yields import Yields, usage_record, yields
from ratchet.research.views.baseline import Baseline, baseline_of
from ratchet.research.views.words import duration, finite, json_text

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trial_rows import Trial


@dataclass(frozen=True, slots=True)
class Status:
    run: Run
    standing: Standing
    baseline: Baseline | None
    best: Trial | None
    specialists: Yields
    in_flight: tuple[Trial, ...]
    usage: Usage

    @property
    def simulated(self) -> bool:
        return self.run.simulated or self.run.used_recording

    @property
    def by_status(self) -> Mapping[TrialStatus, int]:
        """How the trials ended, the baseline not among them."""
        return counted(each.by_status for each in self.specialists.rows)

    @property
    def active_seconds(self) -> float:
        return self.standing.active_ms / 1000

    @property
    def seconds_since_keep(self) -> float:
        """Only time in which the run really ran."""
        return max(0, self.standing.active_ms - self.standing.kept_at_ms) / 1000

    @property
    def last_keep(self) -> str:
        """When a trial was kept last, in words: of a run that runs from now, of one that stopped from its end."""
        if not self.standing.best:
            return "nothing kept"
        since = duration(self.seconds_since_keep)
        status = self.run.status
        if not status.stands:
            return f"last keep {since} ago"
        return f"last keep {since} before {'the end' if status.final else 'it stopped'}"

    @property
    def plain_baseline(self) -> str | None:
        """What a plain method reaches, as the task tells it."""
        return self.run.spec.get("plain_baseline") or None

    @property
    def known_best(self) -> str | None:
        """The best that anybody is known to have, as the task tells it."""
        return self.run.spec.get("known_best") or None

    @property
    def gained(self) -> float | None:
        """How much better the best is than the baseline."""
        if self.baseline is None or self.standing.best_score is None:
            return None
        return self.standing.direction.gain(self.standing.best_score, self.baseline.score)

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run.id,
            "name": self.run.name,
            "task": self.standing.task,
            "status": str(self.run.status),
            "reason": self.run.reason,
            "result": self.run.result,
            "simulated": self.simulated,
            "direction": str(self.standing.direction),
            "score_field": self.standing.score_field,
            "keep_policy": self.standing.keep_policy,
            "trials": self.standing.trials,
            "by_status": {str(status): count for status, count in self.by_status.items()},
            "in_flight": [each.exp_id for each in self.in_flight],
            "baseline": self.baseline and self.baseline.to_dict(),
            "best": self._best(),
            "plain_baseline": self.plain_baseline and json_text(self.plain_baseline),
            "known_best": self.known_best and json_text(self.known_best),
            "usage": usage_record(self.usage),
            "active_seconds": self.active_seconds,
            "seconds_since_keep": self.seconds_since_keep,
            "last_keep": self.last_keep,
            "specialists": self.specialists.to_dict(),
        }

    def _best(self) -> dict[str, Any] | None:
        if self.standing.best is None:
            return None
        score = finite(self.standing.best_score)
        delta = None if self.baseline is None or score is None else score - self.baseline.score
        return {
            "exp_id": exp_id(self.standing.best),
            "score": score,
            "delta_vs_baseline": delta,
            "specialist": self.best and json_text(self.best.specialist),
            "hypothesis": self.best and json_text(self.best.hypothesis),
            "commit": self.standing.best_commit,
        }


def counted(tallies: Iterable[Mapping[TrialStatus, int]]) -> dict[TrialStatus, int]:
    """The sum of these, in the order of the statuses."""
    found: Counter[TrialStatus] = Counter()
    for each in tallies:
        found.update(each)
    return {status: found[status] for status in TrialStatus if found[status]}


def better(direction: Direction) -> str:
    return "higher is better" if direction is Direction.MAX else "lower is better"


def read_status(tx: Transaction, run_id: int) -> Status:
    """Raises `NotFound` when there is no such run, or it is not research."""
    standing = get_standing(tx, run_id)
    return Status(
        run=get_run(tx, run_id),
        standing=standing,
        baseline=baseline_of(tx, standing),
        best=None if standing.best is None else find_trial(tx, run_id, standing.best),
        specialists=yields(tx, run_id),
        in_flight=tuple(in_flight(tx, run_id)),
        usage=spending.total(tx, "run", run_id),
    )


def status(tx: Transaction, run_id: int) -> dict[str, Any]:
    """Where a run stands, as JSON. Raises `NotFound` when there is no such run, or it is not research."""
    return read_status(tx, run_id).to_dict()
