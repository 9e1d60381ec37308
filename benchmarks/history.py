"""Long histories, made in seconds: the database itself counts up the rows."""

from __future__ import annotations

import sqlalchemy as sa

from ratchet.ledger import Ledger

# Every page has as many rows in a short history as in a long one, or their times could not be compared: a hundred
# events per run, and sixty events of the seldom kind in all.
_EVENTS_OF_A_RUN = 100
_SELDOM = 60
_NOW = 1_800_000_000_000

COUNT = {
    "sqlite": "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {count})",
    "postgresql": "WITH counted(n) AS (SELECT generate_series(1, {count}))",
}

_EVENTS = """
INSERT INTO events (at, type, actor, run_id, step_id, job_id, message, data)
{counted}
SELECT {now} + n,
       CASE WHEN n % {seldom} = 5 THEN 'project.created'
            WHEN n % 4 = 0 THEN 'run.running'
            WHEN n % 4 = 1 THEN 'step.completed'
            WHEN n % 4 = 2 THEN 'step.running'
            ELSE 'attempt.started' END,
       'bench', n / {of_a_run} + 1, n / 10 + 1, n / 20 + 1, 'an event of the history', '{{"from":"a","to":"b"}}'
FROM counted
"""

# One run in a thousand is still continuing, and as many jobs.
_RUNS = """
INSERT INTO runs (kind, name, status, spec, simulated, used_recording, created_at, updated_at, ended_at)
{counted}
SELECT CASE WHEN n % 2 = 0 THEN 'research' ELSE 'workflow' END, 'run ' || (n % 50),
       CASE WHEN n % 1000 = 7 THEN 'running' ELSE 'completed' END,
       '{{}}', {false}, {false}, {now} + n, {now} + n, {now} + n
FROM counted
"""

_JOBS = """
INSERT INTO jobs (kind, queue, priority, payload, run_id, status, attempt, max_attempts, delivery, recoveries,
                  created_at, due_at, started_at, ended_at)
{counted}
SELECT 'tick', 'default', 5, '{{}}', n,
       CASE WHEN n > {count} - 50 THEN 'queued' WHEN n % 100 = 3 THEN 'failed' ELSE 'finished' END,
       1, 3, 1, 0, {now} + n, {now} + n, {now} + n, {now} + n
FROM counted
"""

_TALLY = """
INSERT INTO job_tallies (queue, status, process_id, count)
SELECT queue, status, 'bench', count(*) FROM jobs WHERE status IN ('finished', 'failed') GROUP BY queue, status
"""


def fill(ledger: Ledger, *, events: int, rows: int) -> None:
    """Give a new ledger that many events, and that many runs and jobs."""
    dialect = ledger.engine.dialect.name
    with ledger.engine.connect() as connection:
        for statement, count in ((_EVENTS, events), (_RUNS, rows), (_JOBS, rows), (_TALLY, 0)):
            text = statement.format(
                counted=COUNT[dialect].format(count=count),
                count=count,
                now=_NOW,
                seldom=max(1, count // _SELDOM),
                of_a_run=_EVENTS_OF_A_RUN,
                false="0" if dialect == "sqlite" else "FALSE",
            )
            connection.execute(sa.text(text))
        connection.commit()
    if dialect == "postgresql":
        # What autovacuum does by itself a little later.
        with ledger.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")


_PROJECT = """
INSERT INTO projects (name, created_at, updated_at, git_url, base_branch)
VALUES ('bench', {now}, {now}, '/nowhere', 'main')
"""
_PROTOCOL_RUNS = """
INSERT INTO runs (kind, name, project_id, status, spec, simulated, used_recording, created_at, updated_at, ended_at)
{counted}
SELECT 'protocol', 'p' || n, 1, CASE WHEN n % 1000 = 7 THEN 'running' ELSE 'completed' END,
       '{{}}', {false}, {false}, {now} + n, {now} + n, {now} + n
FROM counted
"""
_PROTOCOLS = """
INSERT INTO protocols (run_id, project_id, name, base_branch, automatic)
SELECT id, 1, name, 'main', {true} FROM runs
"""
_PROTOCOL_STEPS = """
INSERT INTO steps (run_id, position, name, status, spec, created_at, updated_at)
{counted}
SELECT (n + 3) / 4, n % 4, 'step ' || (n % 4), 'completed', '{{}}', {now} + n, {now} + n
FROM counted
"""
_STEP_ROWS = """
INSERT INTO protocol_steps (step_id, run_id, step_index, step_type, retries, awaits_ci)
SELECT id, run_id, position, 'work', 0, {false} FROM steps
"""


def fill_protocols(ledger: Ledger, *, events: int, runs: int) -> None:
    """Give a new ledger one project with that many protocols of four steps, and that many events of theirs."""
    dialect = ledger.engine.dialect.name
    counts = (
        (_PROJECT, 0),
        (_PROTOCOL_RUNS, runs),
        (_PROTOCOLS, 0),
        (_PROTOCOL_STEPS, 4 * runs),
        (_STEP_ROWS, 0),
        (_EVENTS, events),
    )
    with ledger.engine.connect() as connection:
        for statement, count in counts:
            text = statement.format(
                counted=COUNT[dialect].format(count=count),
                now=_NOW,
                seldom=max(1, count // _SELDOM),
                of_a_run=_EVENTS_OF_A_RUN,
                false="0" if dialect == "sqlite" else "FALSE",
                true="1" if dialect == "sqlite" else "TRUE",
            )
            connection.execute(sa.text(text))
        connection.commit()
    if dialect == "postgresql":
        with ledger.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
