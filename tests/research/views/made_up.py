"""Runs that never ran: rows as the supervisor would leave them, one at a time or thousands at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Direction, TrialStatus
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.research import get_standing, open_research, set_baseline
from ratchet.ledger.runs import create_run
from ratchet.ledger.tables import research, trial_tallies, trials
from ratchet.ledger.trials import Ending, Submission, end_trial, get_trial, open_trial

SPECIALISTS = ("opt", "arch", "reg")


def make_run(ledger: Ledger, direction: Direction = Direction.MAX, *, simulated: bool = False) -> int:
    with ledger.write() as tx:
        run = create_run(tx, "research", "a run", simulated=simulated)
        open_research(
            tx, run, task="a task", score_field="metric", direction=direction, keep_policy="confident"
        )
    return run


def make_baseline(
    ledger: Ledger, run_id: int, score: float = 1.0, spread: Mapping[str, Any] | None = None
) -> None:
    with ledger.write() as tx:
        trial = open_trial(
            tx,
            run_id,
            Submission(specialist="baseline", hypothesis="as it came", commit="c000", parent=None),
            baseline=True,
        )
        set_baseline(tx, run_id, {"score": score, "sd": 0.01, "n": 5} if spread is None else spread)
        end_trial(tx, run_id, trial.number, Ending(status=TrialStatus.BASELINE, score=score))


def submit(ledger: Ledger, run_id: int, hypothesis: str = "an idea", **facts: Any) -> int:
    """A trial in flight; `facts` are those of a submission."""
    with ledger.write() as tx:
        facts = {"specialist": "opt", "parent": 0, "commit": "c0ffee", **facts}
        return open_trial(tx, run_id, Submission(hypothesis=hypothesis, **facts)).number


def try_out(
    ledger: Ledger,
    run_id: int,
    status: str,
    score: float | None = None,
    hypothesis: str = "an idea",
    *,
    reason: str = "",
    measurements: Mapping[str, Any] | None = None,
    **facts: Any,
) -> int:
    """A trial that has ended, compared with the best of now if its score is valid."""
    number = submit(ledger, run_id, hypothesis, **facts)
    end(ledger, run_id, number, status, score, reason=reason, measurements=measurements)
    return number


def end(
    ledger: Ledger,
    run_id: int,
    number: int,
    status: str,
    score: float | None = None,
    *,
    reason: str = "",
    measurements: Mapping[str, Any] | None = None,
) -> None:
    """Let a trial in flight end, compared with the best of now if its score is valid."""
    ended = TrialStatus(status)
    with ledger.write() as tx:
        best = get_standing(tx, run_id)
        compared = ended.valid and score is not None and best.best_score is not None
        ending = Ending(
            status=ended,
            score=score,
            reason=reason,
            delta=score - best.best_score if compared else None,  # type: ignore[operator]
            compared_to=best.best if compared else None,
            measurements=measurements,
        )
        end_trial(tx, run_id, number, ending)


def grow(ledger: Ledger, run_id: int, count: int) -> None:
    """The first `count` trials at once, one in eight kept and some of every kind in between; a multiple of eight."""
    with ledger.write() as tx:
        rows = [_row(run_id, number, tx.now) for number in range(1, count + 1)]
        tx.connection.execute(sa.insert(trials), rows)
        _stand(tx, run_id, count)


def multiply(ledger: Ledger, run_id: int, times: int) -> None:
    """As many trials again, and again, as `grow` made: the database itself copies them."""
    with ledger.write() as tx:
        count = get_standing(tx, run_id).next_number - 1
        moved = {"number", "parent"}
        names = [column.name for column in trials.c if column.name not in ("id", "compared_to")]
        for time in range(1, times):
            copied = [trials.c[name] + time * count if name in moved else trials.c[name] for name in names]
            several = trials.c.number.between(1, count)
            query = sa.select(*copied).where(trials.c.run_id == run_id, several)
            tx.connection.execute(sa.insert(trials).from_select(names, query))
        _stand(tx, run_id, count * times)


def _stand(tx: Transaction, run_id: int, last: int) -> None:
    """Bring the counts and the standing of a run to where its rows are."""
    tx.connection.execute(sa.delete(trial_tallies).where(trial_tallies.c.run_id == run_id))
    counted = (
        sa.select(trials.c.run_id, trials.c.specialist, trials.c.status, sa.func.count())
        .where(trials.c.run_id == run_id, trials.c.status.is_not(None))
        .group_by(trials.c.run_id, trials.c.specialist, trials.c.status)
    )
    tx.connection.execute(
        sa.insert(trial_tallies).from_select(["run_id", "specialist", "status", "count"], counted)
    )
    best = get_trial(tx, run_id, last)
    standing = {"best": last, "best_score": best.score, "best_commit": best.commit}
    tx.connection.execute(
        sa.update(research)
        .where(research.c.run_id == run_id)
        .values(next_number=last + 1, trials=last, **standing)
    )


_USUAL = ("keep", "discard", "crash", "discard", "disqualified", "discard", "infra_error", "discard")


def _row(run_id: int, number: int, now: int) -> dict[str, Any]:
    status = _USUAL[number % len(_USUAL)]
    kept = status == "keep"
    scored = status in ("keep", "discard", "disqualified")
    return {
        "run_id": run_id,
        "number": number,
        # A long line of keeps, each with many children.
        "parent": (number - 1) // 8 * 8,
        "depth": (number - 1) // 8 + 1,
        "specialist": SPECIALISTS[number % 3],
        "domain": SPECIALISTS[number % 3],
        "hypothesis": f"idea {number % 1000} of a specialist",
        "expected_delta": "+0.1",
        "notes": "",
        "commit": f"{number:040x}",
        "simulated": False,
        "status": status,
        # The best score of what was kept is a little under those of the nearest that were not.
        "score": 1 + number / 1e6 if kept else 1 - (number % 97) / 1000 if scored else None,
        "delta": 0.001 if status in ("keep", "discard") else None,
        "reason": "ValueError: no (recipe.py:3 in pack)" if status == "crash" else "",
        "tries": 0,
        "wall_ms": 5,
        "started_at": now,
        "ended_at": now + 1,
    }
