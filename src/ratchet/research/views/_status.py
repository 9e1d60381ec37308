"""The progress of a run: its status, its baseline, runs on one line each, and runs side by side."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ratchet.kernel import Direction, RunStatus, TrialStatus, Usage, exp_id, iso
from ratchet.ledger import usage as spending
from ratchet.ledger.research import Standing, get_standing, standings
from ratchet.ledger.runs import Run, get_run
from ratchet.ledger.trial_pages import in_flight, keep_counts, kept_scores, latest_points, latest_trials
from ratchet.ledger.trials import find_trial
from ratchet.operations import filled, record
from ratchet.research.views.specialists import UsageAnswer, YieldAnswer, Yields, yields
from ratchet.research.views.text import ResearchView, duration, finite, json_text, signed

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction
    from ratchet.ledger.trials import Trial


class Kept(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def ended_at(self) -> int | None: ...


Some = TypeVar("Some", bound=Kept)


def in_force(kept: Iterable[Some]) -> list[Some]:
    """What was kept, by number, each the best from its own trial on.

    Of trials side by side the one that was handed in first may be kept last. It had to beat the others then, so they
    are left out.
    """
    found: list[Some] = []
    last = 0
    for each in sorted(kept, key=lambda one: one.number):
        if (each.ended_at or 0) >= last:
            last = each.ended_at or 0
            found.append(each)
    return found


@dataclass(frozen=True, slots=True)
class BaselineAnswer:
    exp_id: str
    score: float
    sd: float | None
    n: int


@dataclass(frozen=True, slots=True)
class BestAnswer:
    exp_id: str
    score: float | None
    delta_vs_baseline: float | None
    specialist: str | None
    hypothesis: str | None
    commit: str | None


@dataclass(frozen=True, slots=True)
class StandingAnswer:
    """`trials` counts what was submitted, without the baseline and without what could not be measured.

    `gained` is how much better than the baseline the best is; where scores are noisy it is shrunk, and the truth lies
    between `gained_low` and `gained_high`.
    """

    run: int
    name: str
    task: str
    status: RunStatus
    reason: str | None
    result: Any
    simulated: bool
    direction: Direction
    score_field: str
    keep_policy: str
    trials: int
    by_status: dict[str, int]
    in_flight: list[str]
    baseline: BaselineAnswer | None
    best: BestAnswer | None
    gained: float | None
    gained_low: float | None
    gained_high: float | None
    plain_baseline: str | None
    known_best: str | None
    usage: UsageAnswer
    active_seconds: float
    seconds_since_keep: float
    last_keep: str
    specialists: list[YieldAnswer]


@dataclass(frozen=True, slots=True)
class BaselineView:
    """`sd` is the spread of `n` measurements of the same commit; unknown when it was measured once."""

    score: float
    sd: float | None
    n: int

    @property
    def noise(self) -> float:
        """How far a score moves although nothing has changed. Nought where it was never seen to move."""
        return self.sd or 0.0

    def answer(self) -> BaselineAnswer:
        return BaselineAnswer(exp_id(0), self.score, self.sd, self.n)


def baseline_of(tx: Transaction, standing: Standing) -> BaselineView | None:
    """The baseline as the run has it; nothing before it was measured."""
    kept = dict(standing.baseline or {})
    measured = kept.get("samples")
    numbers = map(finite, measured if isinstance(measured, list) else ())
    samples = [each for each in numbers if each is not None]
    score = finite(kept.get("score"))
    if score is None and samples:
        score = statistics.fmean(samples)
    if score is None:
        first = find_trial(tx, standing.run_id, 0)
        score = None if first is None else finite(first.score)
    if score is None:
        return None
    sd = finite(kept.get("sd"))
    if sd is None and len(samples) > 1:
        sd = statistics.stdev(samples)
    n = finite(kept.get("n"))
    return BaselineView(score, sd, max(1, len(samples)) if n is None else int(n))


def _gained(standing: Standing, baseline: BaselineView | None) -> float | None:
    """How much better the best is than the baseline."""
    if baseline is None or standing.best_score is None:
        return None
    return standing.direction.gain(standing.best_score, baseline.score)


@dataclass(frozen=True, slots=True)
class Status(ResearchView):
    run: Run
    standing: Standing
    baseline: BaselineView | None
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
        return _gained(self.standing, self.baseline) if self._proven is None else self._proven[0]

    @property
    def gained_low(self) -> float | None:
        return None if self._proven is None else self._proven[1]

    @property
    def gained_high(self) -> float | None:
        return None if self._proven is None else self._proven[2]

    @property
    def gained_range(self) -> str:
        """Between what the gain lies, as it stands behind it; nothing where there is no noise."""
        if self._proven is None:
            return ""
        _, low, high = self._proven
        return f" ({signed(low)} to {signed(high)})"

    @property
    def _proven(self) -> tuple[float, float, float] | None:
        """The gain and its bounds, as the decisions that led to the best added them up; nothing without noise."""
        record = self.best.measurements if self.best is not None else None
        found = record.get("gained") if isinstance(record, dict) else None
        numbers = [finite(each) for each in found] if isinstance(found, list) else []
        gain, low, high = numbers if len(numbers) == 3 else (None, None, None)
        if gain is None or low is None or high is None or low == high:
            return None
        return gain, low, high

    def answer(self) -> StandingAnswer:
        run, standing = self.run, self.standing
        same = ("task", "direction", "score_field", "keep_policy", "trials")
        return filled(
            StandingAnswer,
            self,
            run=run.id,
            name=run.name,
            status=run.status,
            reason=run.reason,
            result=run.result,
            **{name: getattr(standing, name) for name in same},
            by_status={str(status): count for status, count in self.by_status.items()},
            in_flight=[each.exp_id for each in self.in_flight],
            baseline=self.baseline and self.baseline.answer(),
            best=self._best(),
            plain_baseline=json_text(self.plain_baseline),
            known_best=json_text(self.known_best),
            usage=UsageAnswer.of(self.usage),
            specialists=self.specialists.answer(),
        )

    def _best(self) -> BestAnswer | None:
        if self.standing.best is None:
            return None
        score = finite(self.standing.best_score)
        return BestAnswer(
            exp_id=exp_id(self.standing.best),
            score=score,
            delta_vs_baseline=None if self.baseline is None or score is None else score - self.baseline.score,
            specialist=json_text(self.best and self.best.specialist),
            hypothesis=json_text(self.best and self.best.hypothesis),
            commit=self.standing.best_commit,
        )


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
    return record(read_status(tx, run_id).answer())


_LAST = 5
_SCORES = 60
_KEPT = 40


@dataclass(frozen=True, slots=True)
class LiveView:
    """`kept` and `recent` are scores, oldest first: of the best so far, and of the last trials that have one."""

    status: Status
    last: tuple[Trial, ...]
    kept: tuple[float, ...]
    recent: tuple[float, ...]
    now: int


def read_live(tx: Transaction, run_id: int) -> LiveView:
    """Raises `NotFound` when there is no such run, or it is not research."""
    status = read_status(tx, run_id)
    ended = [each for each in latest_trials(tx, run_id, limit=_LAST + len(status.in_flight)) if each.status]
    kept = [each.score for each in in_force(kept_scores(tx, run_id, limit=_KEPT)) if each.score is not None]
    points = [each for each in latest_points(tx, run_id, limit=_SCORES) if each.status and each.status.valid]
    recent = [each.score for each in points if each.score is not None]
    return LiveView(status, tuple(ended[:_LAST]), tuple(kept), tuple(reversed(recent)), tx.now)


KEEPS = 2000
_BUDGETS = 8
# Among so many that were kept next to each other the one that was kept last is looked for.
_SIDE_BY_SIDE = 50


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """`after` is the best score after each of the budgets; nothing where the run did not get as far."""

    run: Overview
    after: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**self.run.to_dict(), "after": list(self.after)}


@dataclass(frozen=True, slots=True)
class RunComparison:
    """`budgets` are numbers of trials."""

    budgets: tuple[int, ...]
    rows: tuple[ComparedRun, ...]

    @property
    def alike(self) -> bool:
        """Whether all of them have the same score, so that they can be compared at all."""
        scores = {(row.run.standing.score_field, row.run.standing.direction) for row in self.rows}
        return len(scores) <= 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "budgets": list(self.budgets),
            "alike": self.alike,
            "runs": [row.to_dict() for row in self.rows],
        }


def compare(tx: Transaction, run_ids: Sequence[int]) -> RunComparison:
    """Raises `NotFound` when one of them does not exist. The cost does not grow with the length of the runs."""
    found = overview(tx, [get_run(tx, run_id) for run_id in run_ids], keeps=KEEPS)
    budgets = _budgets(max((each.last for each in found), default=0))
    rows = (ComparedRun(each, tuple(_best_after(tx, each, budget) for budget in budgets)) for each in found)
    return RunComparison(budgets, tuple(rows))


def _budgets(longest: int) -> tuple[int, ...]:
    """Round numbers up to the length of the longest run, and that."""
    rounded = [step * 10**power for power in range(1, 8) for step in (1, 2, 5)]
    return (*[each for each in rounded if each < longest][-_BUDGETS:], longest) if longest else ()


def _best_after(tx: Transaction, run: Overview, trials: int) -> float | None:
    if run.last < trials:
        return None
    newest = in_force(kept_scores(tx, run.run.id, before=trials + 1, limit=_SIDE_BY_SIDE))
    return finite(newest[-1].score) if newest else None


Steps = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """`kept` are the numbers and scores that the best had, the newest of them, oldest first, from the baseline on."""

    run: Run
    standing: Standing
    baseline: BaselineView | None
    keeps: int
    kept: Steps
    usage: Usage

    @property
    def last(self) -> int:
        """The number of the last trial."""
        return max(0, self.standing.next_number - 1)

    @property
    def gained(self) -> float | None:
        return _gained(self.standing, self.baseline)

    def to_dict(self) -> dict[str, Any]:
        run, standing = self.run, self.standing
        return {
            "run": run.id,
            "name": run.name,
            "status": str(run.status),
            "simulated": run.simulated or run.used_recording,
            "created_at": iso(run.created_at),
            "task": standing.task,
            "score_field": standing.score_field,
            "direction": str(standing.direction),
            "best": None if standing.best is None else exp_id(standing.best),
            "best_score": finite(standing.best_score),
            "baseline_score": None if self.baseline is None else self.baseline.score,
            "gained": finite(self.gained),
            "trials": standing.trials,
            "keeps": self.keeps,
            "cost_usd": self.usage.whole_cost_usd,
            "tokens": self.usage.tokens,
            "active_seconds": standing.active_ms / 1000,
        }


def overview(tx: Transaction, runs: Sequence[Run], *, keeps: int = 100) -> list[Overview]:
    """These runs, in their order; those that are not research are left out. Reads `keeps` of what each has kept."""
    numbers = [run.id for run in runs]
    found, counts = standings(tx, numbers), keep_counts(tx, numbers)
    used = spending.totals(tx, "run", numbers)
    return [
        Overview(
            run=run,
            standing=found[run.id],
            baseline=baseline_of(tx, found[run.id]),
            keeps=counts[run.id],
            kept=_kept(tx, run.id, keeps),
            usage=used[run.id],
        )
        for run in runs
        if run.id in found
    ]


def _kept(tx: Transaction, run_id: int, limit: int) -> Steps:
    newest = kept_scores(tx, run_id, limit=limit)
    found = ((each.number, finite(each.score)) for each in in_force(newest))
    return tuple((number, score) for number, score in found if score is not None)


@dataclass(frozen=True, slots=True)
class Band:
    """Where the middle eight tenths of the runs of an arm are, and the middle one."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Band:
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        cut = statistics.quantiles(values, n=10, method="inclusive")
        return cls(cut[0], cut[4], cut[8])

    def __str__(self) -> str:
        return f"{self.median:.6g} ({self.low:.6g} to {self.high:.6g})"


@dataclass(frozen=True, slots=True)
class Arm:
    """One strategy: what its best came to after so many trials, over its runs.

    `ahead_of_plain` says how many of its runs ended better than that of the plain baseline with the same seed.
    """

    strategy: str
    runs: int
    ahead_of_plain: int
    bands: dict[str, Band]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arms at equal budgets.

    `plain` is the arm that every other is held against; `left` says how many runs have not ended.
    """

    on: str
    trials: int
    plain: str
    arms: tuple[Arm, ...]
    left: int = 0

    def to_markdown(self) -> str:
        places = list(self.arms[0].bands)
        head = ["strategy", *(f"after {at}" for at in places), f"ahead of {self.plain}"]
        lines = [f"Best on {self.on}: the median, and where eight of ten runs are.", ""]
        lines += ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        for arm in self.arms:
            against = "–" if arm.strategy == self.plain else f"{arm.ahead_of_plain} of {arm.runs}"
            cells = [arm.strategy, *(str(arm.bands[at]) for at in places), against]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)
