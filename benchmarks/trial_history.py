"""Long research runs, made in seconds: the database itself counts up the trials."""

from __future__ import annotations

import sqlalchemy as sa

from benchmarks.history import COUNT
from ratchet.kernel import Direction, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson, open_research, set_baseline
from ratchet.ledger.runs import create_run
from ratchet.ledger.trials import Ending, Submission, end_trial, open_trial

_LESSONS = 40
# Every view is as full in a short history as in a long one, or their times could not be compared. So the newest trials
# are alike in all of them: a line of forty that were kept, and sixty that were made from the best of those.
_TRIALS = """
INSERT INTO trials (run_id, number, parent, depth, specialist, domain, hypothesis, expected_delta, notes, "commit",
                    simulated, status, score, delta, reason, tries, wall_ms, started_at, ended_at)
{counted}
SELECT {run}, n, CASE WHEN {count} - n < 60 THEN {count} - 60 ELSE n - 1 END,
       CASE WHEN {count} - n < 60 THEN {count} - 59 ELSE n END,
       's' || (({count} - n) % 6), 'd',
       'raise the rate of part ' || (({count} - n) % 50) || ' and lower its depth by one',
       '+0.01', '', 'c' || n, {false},
       CASE WHEN {count} - n < 2 THEN NULL
            WHEN {count} - n < 60 THEN
                CASE ({count} - n) % 5 WHEN 0 THEN 'crash' WHEN 1 THEN 'disqualified' ELSE 'discard' END
            WHEN {count} - n < 100 OR n % 10 = 0 THEN 'keep'
            WHEN n % 10 = 1 THEN 'crash' ELSE 'discard' END,
       CASE WHEN {count} - n < 60 THEN 2 - ({count} - n) * 0.0000001
            WHEN {count} - n < 100 OR n % 10 = 0 THEN 2 - ({count} - n) * 0.000001 ELSE 1 END,
       0.001, 'ValueError: shapes differ (recipe.py:31 in forward)', 0, 5, {now} + n, {now} + n
FROM counted
"""
_TALLIES = """
INSERT INTO trial_tallies (run_id, specialist, status, count)
SELECT run_id, specialist, status, count(*) FROM trials
WHERE run_id = {run} AND status IS NOT NULL AND number > 0 GROUP BY run_id, specialist, status
"""
_STANDING = """
UPDATE research SET next_number = {count} + 1, trials = {count}, best = {count} - 60, best_commit = 'c',
       best_score = (SELECT score FROM trials WHERE run_id = {run} AND number = {count} - 60) WHERE run_id = {run}
"""


def fill_trials(ledger: Ledger, count: int) -> int:
    """Give a new ledger a research run of that many trials, at least a hundred; its number."""
    with ledger.write() as tx:
        run = create_run(tx, "research", "bench")
        open_research(
            tx, run, task="bench", score_field="score", direction=Direction.MAX, keep_policy="strict"
        )
        first = Submission(specialist="baseline", hypothesis="as it came", commit="c0", parent=None)
        open_trial(tx, run, first, baseline=True)
        end_trial(tx, run, 0, Ending(status=TrialStatus.BASELINE, score=1.0))
        set_baseline(tx, run, {"score": 1.0, "sd": 0.00001, "n": 5})
        for number in range(_LESSONS):
            add_lesson(tx, run, "s1", f"lesson {number}: a low rate wants more depth")
    dialect = ledger.engine.dialect.name
    false = "0" if dialect == "sqlite" else "FALSE"
    facts = {"run": run, "count": count, "now": 1_800_000_000_000, "false": false}
    with ledger.engine.connect() as connection:
        for statement in (_TRIALS, _TALLIES, _STANDING):
            text = statement.format(counted=COUNT[dialect].format(count=count), **facts)
            connection.execute(sa.text(text.replace(":31", r"\:31")))
        connection.commit()
    if dialect == "postgresql":
        # What autovacuum does by itself a little later.
        with ledger.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    return run
