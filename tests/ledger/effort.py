"""How much work a database does for something. It is counted, not timed.

Instructions of SQLite's virtual machine, and rows that PostgreSQL's plan nodes touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from ratchet.ledger import Ledger, Transaction


def effort(tx: Transaction, view: Callable[[Transaction], object]) -> int:
    return _postgresql_work(tx, view) if tx.on_postgresql else _sqlite_work(tx, view)


def _sqlite_work(tx: Transaction, view: Callable[[Transaction], object]) -> int:
    driver = tx.connection.connection.driver_connection
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return 0

    driver.set_progress_handler(tick, 10)
    try:
        view(tx)
    finally:
        driver.set_progress_handler(None, 10)
    return ticks * 10


def _postgresql_work(tx: Transaction, view: Callable[[Transaction], object]) -> int:
    """The rows that passed through, or were thrown away by, the nodes of all plans."""
    # Of a small table the planner would rather read all; what counts is what it does with a large one.
    tx.connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
    # A bitmap scan touches a row twice, and the planner may take to it when a table is larger.
    tx.connection.execute(sa.text("SET LOCAL enable_bitmapscan = off"))
    with statements_of(tx.connection) as statements:
        view(tx)
    total = 0
    for statement, parameters in statements:
        explained = tx.connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
        ).scalar_one()
        total += sum(
            int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
            for node in _nodes(explained[0]["Plan"])
        )
    return total


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


@contextlib.contextmanager
def statements_of(connection: sa.Connection) -> Iterator[list[tuple[str, Any]]]:
    """The queries that are run meanwhile."""
    seen: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if statement.startswith(("SELECT", "WITH")) and "pg_advisory" not in statement:
            seen.append((statement, parameters))

    sa.event.listen(connection, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(connection, "before_cursor_execute", note)


def plan_of(tx: Transaction, statement: str, parameters: Any) -> list[str]:
    if not tx.on_postgresql:
        rows = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return [row.detail for row in rows]
    tx.connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
    # A bitmap scan touches a row twice, and the planner may take to it when a table is larger.
    tx.connection.execute(sa.text("SET LOCAL enable_bitmapscan = off"))
    return list(tx.connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())


def analyze(ledger: Ledger) -> None:
    if ledger.path is None:
        with ledger.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("ANALYZE")
