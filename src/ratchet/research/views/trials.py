"""Trials as the views show them: one row, the leaderboard, the latest, near misses, measured pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ratchet.kernel import Direction, TrialStatus, exp_id
from ratchet.ledger import trial_pages as ledger
from ratchet.ledger.research import Standing, get_standing
from ratchet.ledger.trial_pages import kept_lines, kept_trials, tried_trials
from ratchet.operations import filled
from ratchet.research.decision.outcome import Phase, Side
from ratchet.research.views._status import BaselineView, baseline_of
from ratchet.research.views.text import (
    ResearchView,
    both_ends,
    cell,
    escaped,
    finite,
    json_text,
    number,
    one_line,
    signed,
)

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trials import Trial


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """`status` is `running` until it has ended. `delta_vs_best` is its score less that of the best of then."""

    exp_id: str
    parent: str | None
    specialist: str
    domain: str
    status: str
    score: float | None
    delta_vs_best: float | None
    expected_delta: str
    hypothesis: str
    reason: str | None
    commit: str | None
    simulated: bool
    wall_ms: int | None
    started_at: int
    ended_at: int | None

    @classmethod
    def of(cls, trial: Trial, /, **more: Any) -> Self:
        texts = ("specialist", "domain", "expected_delta", "hypothesis", "reason")
        own = {
            "parent": None if trial.parent is None else exp_id(trial.parent),
            "status": status_of(trial),
            "score": finite(trial.score),
            "delta_vs_best": finite(trial.delta),
            **{name: json_text(getattr(trial, name)) for name in texts},
        }
        return filled(cls, trial, **{**own, **more})


@dataclass(frozen=True, slots=True)
class WholeTrial(TrialAnswer):
    """Nothing of it is cut. `origin` says which strategy chose its parent, and what the session was shown beside that.

    `certificate_problems` says what in the certificate contradicts itself now.
    """

    number: int
    depth: int
    notes: str
    compared_to: str | None
    measurements: Any
    origin: Any
    evaluator: str | None
    certificate: str | None
    attempt_id: int | None
    tries: int
    imported: Any
    certificate_content: Any
    certificate_problems: list[str]


@dataclass(frozen=True, slots=True)
class LeaderAnswer(TrialAnswer):
    measurements: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class NearMissAnswer(TrialAnswer):
    gain_vs_best: float
    why: str


def whole(trial: Trial, evidence: Mapping[str, Any]) -> WholeTrial:
    """A trial with what tables have no room for, and its evidence."""
    return WholeTrial.of(
        trial,
        hypothesis=trial.hypothesis,
        reason=trial.reason,
        compared_to=None if trial.compared_to is None else exp_id(trial.compared_to),
        **evidence,
    )


def pairs(certificate: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The rounds of a certificate in order; `gain` is how much better the trial was in it. Empty if there are none."""
    if certificate is None:
        return []
    rounds: dict[Any, dict[str, Any]] = {}
    measured = certificate.get("measurements")
    for taken in measured if isinstance(measured, list) else []:
        if isinstance(taken, Mapping) and taken.get("phase") in (Phase.ROUND, Phase.HELD_OUT):
            key = (taken["phase"], taken.get("seed"))
            row = rounds.setdefault(key, {"phase": str(taken["phase"]), "seed": taken.get("seed")})
            row[str(taken.get("side"))] = finite(taken.get("score"))
    direction = Direction.MIN if certificate.get("direction") == Direction.MIN else Direction.MAX
    return [_pair(row, direction) for row in rounds.values()]


def _pair(row: Mapping[str, Any], direction: Direction) -> dict[str, Any]:
    challenger, champion = row.get(Side.CHALLENGER), row.get(Side.CHAMPION)
    gain = None if challenger is None or champion is None else direction.gain(challenger, champion)
    facts = {"phase": row["phase"], "seed": row["seed"]}
    return {**facts, "challenger": challenger, "champion": champion, "gain": gain}


@dataclass(frozen=True, slots=True)
class Activity(ResearchView):
    """Newest first. What could not be measured, or was taken out afterwards, tells nothing and is not here."""

    none = "Nothing was tried yet."
    score_field: str
    rows: tuple[Trial, ...]

    def answer(self) -> list[TrialAnswer]:
        return list(map(TrialAnswer.of, self.rows))

    def table(self, limit: int = 80) -> list[list[str]]:
        return [activity_head(self.score_field), *(tried_cells(each, limit) for each in self.rows)]


def activity_head(score_field: str) -> list[str]:
    return ["exp", "specialist", "status", one_line(score_field, 40), "Δ", "hypothesis"]


def tried_cells(trial: Trial, limit: int = 80, text: str | None = None) -> list[str]:
    """The row of a trial, with its own words or with `text` in their place."""
    words = one_line(trial.hypothesis, limit) if text is None else text
    numbers = [number(trial.score), signed(trial.delta)]
    return [trial.exp_id, one_line(trial.specialist, 40), status_of(trial), *numbers, words]


def recent_activity(
    tx: Transaction,
    run_id: int,
    *,
    specialist: str | None = None,
    limit: int = 30,
    standing: Standing | None = None,
) -> Activity:
    """The last trials of all specialists, or of one. `standing` is looked up unless it is at hand."""
    rows = tried_trials(tx, run_id, specialist=specialist, limit=limit)
    return Activity((standing or get_standing(tx, run_id)).score_field, tuple(rows))


RUNNING = "running"
_WHY = {
    TrialStatus.BASELINE: "where the run began",
    TrialStatus.KEEP: "better than the best of then",
    TrialStatus.DISCARD: "not better than the best of then",
    TrialStatus.CRASH: "it crashed",
    TrialStatus.PREFLIGHT_CRASH: "it could not be started",
    TrialStatus.SIZE_BLOCKED: "it is too large",
    TrialStatus.TRAIN_BUDGET_OVERRUN: "it ran for too long",
    TrialStatus.EVAL_BUDGET_OVERRUN: "its evaluation took too long",
    TrialStatus.DISQUALIFIED: "the evaluator did not accept it",
    TrialStatus.INFRA_ERROR: "it could not be measured",
    TrialStatus.HARNESS_ABORT: "it was taken out afterwards",
}


def status_of(trial: Trial) -> str:
    return RUNNING if trial.status is None else str(trial.status)


def why(trial: Trial, limit: int) -> str:
    """What the judge said, or else what the status means; fit for Markdown."""
    return escaped(_reason(trial, limit))


def _reason(trial: Trial, limit: int) -> str:
    if trial.reason and trial.reason.strip():
        return both_ends(trial.reason, limit)
    return "" if trial.status is None else _WHY[trial.status]


def brief(trial: Trial, label: str) -> str:
    """`070 [opt, keep, time=25.146400, Δ=-0.079500]`"""
    facts = [cell(trial.specialist, 40), status_of(trial), f"{cell(label, 40)}={number(trial.score)}"]
    if trial.delta is not None:
        facts.append(f"Δ={signed(trial.delta)}")
    return f"{trial.exp_id} [{', '.join(facts)}]"


def measured(trial: Trial, name: str) -> float | None:
    """What the evaluator measured beside the score, by its name."""
    found = trial.measurements if isinstance(trial.measurements, dict) else {}
    means = found.get("means")
    return finite(means.get(name) if isinstance(means, dict) else None)


def feedback_of(trial: Trial) -> dict[str, Any]:
    """What those who improve the recipe may know of a trial beside its score; not what is held out.

    The evaluator's measurements, its feedback and artifacts, and the end of the log, each where there is one.
    """
    found = trial.measurements if isinstance(trial.measurements, dict) else {}
    known = {"measurements": found.get("means"), **{name: found.get(name) for name in _FEEDBACK}}
    return {name: value for name, value in known.items() if value}


_FEEDBACK = ("feedback", "artifacts", "log")
TOP = 20


@dataclass(frozen=True, slots=True)
class Leaderboard(ResearchView):
    """In the order of keeping, newest first: each was judged better than the one after it, whatever their noise."""

    none = "Nothing was kept yet."
    score_field: str
    rows: tuple[Trial, ...]
    columns: tuple[str, ...] = ()

    def answer(self) -> list[LeaderAnswer]:
        return [
            LeaderAnswer.of(each, measurements={name: measured(each, name) for name in self.columns})
            for each in self.rows
        ]

    def table(self, limit: int = 100) -> list[list[str]]:
        rows = (kept_cells(each, self.columns, limit) for each in self.rows)
        return [leaderboard_head(self.score_field, self.columns), *rows]


def leaderboard_head(score_field: str, columns: Sequence[str] = ()) -> list[str]:
    shown = (one_line(name, 40) for name in (score_field, *columns))
    return ["exp", *shown, "Δ", "specialist", "hypothesis"]


def kept_cells(
    trial: Trial, columns: Sequence[str] = (), limit: int = 100, text: str | None = None
) -> list[str]:
    """The row of a trial, with its own words or with `text` in their place."""
    numbers = [number(trial.score), *(number(measured(trial, name)) for name in columns)]
    words = one_line(trial.hypothesis, limit) if text is None else text
    return [trial.exp_id, *numbers, signed(trial.delta), one_line(trial.specialist, 40), words]


def leaderboard(
    tx: Transaction,
    run_id: int,
    *,
    limit: int = TOP,
    columns: Sequence[str] = (),
    standing: Standing | None = None,
) -> Leaderboard:
    """`columns` names what else the evaluator measured that is worth a column."""
    rows = kept_best_first(tx, run_id, limit=limit, brief=not columns)
    return Leaderboard((standing or get_standing(tx, run_id)).score_field, tuple(rows), tuple(columns))


def kept_best_first(tx: Transaction, run_id: int, *, limit: int = TOP, brief: bool = False) -> list[Trial]:
    """What was kept in the order of keeping, newest first, without the baseline; `brief` leaves out what is JSON."""
    # One more than wanted: the baseline is among them, and is not something that was kept.
    page = kept_lines if brief else kept_trials
    kept = [each for each in page(tx, run_id, limit=limit + 1) if each.status is TrialStatus.KEEP]
    # Of trials side by side the one that was handed in last need not be the one that was kept last.
    kept.sort(key=lambda each: (each.ended_at or 0, each.number), reverse=True)
    return kept[:limit]


# Nearly as good is within twice the noise, or, where there is none, within a hundredth of what the run has gained.
_NOISES = 2.0
_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class NearMisses(ResearchView):
    """`margin` is how far a score may fall short of the best to count. `rows` come best first."""

    none = "No near misses."
    standing: Standing
    margin: float
    rows: tuple[Trial, ...]

    def gain(self, trial: Trial) -> float:
        """How much better than the best it is; below nought when it is worse."""
        best = self.standing.best_score
        if trial.score is None or best is None:
            return 0.0
        return self.standing.direction.gain(trial.score, best)

    def answer(self) -> list[NearMissAnswer]:
        return [
            NearMissAnswer.of(each, gain_vs_best=self.gain(each), why=why(each, 300)) for each in self.rows
        ]

    def table(self, limit: int = 100) -> list[list[str]]:
        field = one_line(self.standing.score_field, 40)
        head = ["exp", field, "better than best by", "status", "specialist", "hypothesis", "why not kept"]
        return [head, *(self._cells(each, limit) for each in self.rows)]

    def _cells(self, trial: Trial, limit: int) -> list[str]:
        facts = [trial.exp_id, number(trial.score), signed(self.gain(trial)), status_of(trial)]
        words = [one_line(trial.specialist, 40), one_line(trial.hypothesis, limit)]
        return [*facts, *words, _reason(trial, max(limit, 160))]


def near_misses(
    tx: Transaction, run_id: int, *, limit: int = 10, standing: Standing | None = None
) -> NearMisses:
    standing = standing or get_standing(tx, run_id)
    if standing.best_score is None:
        return NearMisses(standing, 0.0, ())
    found = ledger.near_misses(tx, run_id, standing.direction, limit=limit)
    return nearest(standing, baseline_of(tx, standing), found)


def nearest(standing: Standing, baseline: BaselineView | None, trials: Iterable[Trial]) -> NearMisses:
    """Those of `trials`, which have a score and were not kept, that are nearly as good as the best."""
    best = standing.best_score
    if best is None:
        return NearMisses(standing, 0.0, ())
    margin = _margin(standing, best, baseline)
    gain = standing.direction.gain
    near = [
        (-found, each.number, each)
        for each in trials
        if each.score is not None and (found := gain(each.score, best)) >= -margin
    ]
    return NearMisses(standing, margin, tuple(each for _, _, each in sorted(near)))


def _margin(standing: Standing, best: float, baseline: BaselineView | None) -> float:
    if baseline is None:
        return 0.0
    if baseline.noise:
        return _NOISES * baseline.noise
    return _SHARE * abs(standing.direction.gain(best, baseline.score))


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of checking a certificate.

    `problems` is everything that speaks against it; `again` is the result of measuring once more.
    """

    run: int | None
    exp_id: str | None
    signed_by: str | None
    gain: float | None
    problems: list[str]
    again: str | None = None
    holds: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", not self.problems)
