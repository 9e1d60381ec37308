"""Statements to a PostgreSQL server, each prepared once per connection, and sent together where no answer is needed.

A cursor of the driver takes several times as long as the server does, and each answer that is waited for costs two
changes of process on top. So libpq, which the driver is made of, is given the statements, with the driver's own
conversions of values. What is only told is kept until something is asked, and both go in one round trip.
"""

from __future__ import annotations

import select
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import generators, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result

from ratchet.ledger.compiled import Bound, Compiled, Row
from ratchet.ledger.line import Refused

_GOOD = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
# What a connection has prepared is not what the server knows any more, or returns something else by now.
_STALE = ("0A000", "26000", "42P05")


class _Told(NamedTuple):
    statement: Compiled
    bound: Bound
    dumped: list[Any]


class PostgresqlLine:
    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self._driver = driver
        self._libpq = driver.pgconn
        self._adapt = Transformer(driver)
        self._prepared: set[bytes] = set()
        self._waiting: list[_Told] = []
        self._heard = select.poll()
        self._heard.register(driver.pgconn.socket, select.POLLIN)

    def ask(self, statement: Compiled, bound: Bound) -> list[Row]:
        told = self._dumped(statement, bound)
        if self._waiting or statement.name not in self._prepared:
            self._waiting.append(told)
            result = self._exchange()
        else:
            result = self._run(told)
        if not statement.columns:
            return []
        self._adapt.set_pgresult(result)
        rows: list[Row] = self._adapt.load_rows(0, result.ntuples, tuple)
        return statement.read(rows, result.ftype)

    def tell(self, statement: Compiled, bound: Bound) -> None:
        self._waiting.append(self._dumped(statement, bound))

    def tell_each(self, statement: Compiled, bounds: Sequence[Bound]) -> None:
        self._waiting += [self._dumped(statement, bound) for bound in bounds]

    def quiet(self) -> bool:
        return not self._heard.poll(0)

    def send(self) -> None:
        """Run what waits."""
        if self._waiting:
            self._exchange()

    def forget(self) -> None:
        """What waits is not wanted any more: its transaction is rolled back."""
        self._waiting.clear()

    @property
    def begun(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._waiting) or self._libpq.transaction_status != pq.TransactionStatus.IDLE

    @property
    def failed(self) -> bool:
        """Whether a statement of the transaction was refused, so that nothing of it can be committed."""
        return self._libpq.transaction_status == pq.TransactionStatus.INERROR

    def _dumped(self, statement: Compiled, bound: Bound) -> _Told:
        try:
            dumped = self._adapt.dump_sequence(bound, [PyFormat.TEXT] * len(bound))
        except psycopg.Error as error:
            raise Refused(statement, bound, error) from error
        return _Told(statement, bound, list(dumped))

    def _run(self, told: _Told) -> Any:
        try:
            self._libpq.send_query_prepared(told.statement.name, told.dumped)
            [result] = self._driver.wait(generators.execute(self._libpq))
        except psycopg.Error as error:
            raise Refused(told.statement, told.bound, error) from error
        self._check(told, result)
        return result

    def _exchange(self) -> Any:
        """Send all that waits at once; the last answer. After the first that is refused the server runs none."""
        told, self._waiting = self._waiting, []
        new = {each.statement.name for each in told} - self._prepared
        try:
            self._libpq.enter_pipeline_mode()
            sent = list(self._send(told, new))
            self._libpq.pipeline_sync()
            answers = self._driver.wait(_answers(self._libpq, len(sent)))
            self._libpq.exit_pipeline_mode()
        except BaseException as error:
            # Nobody knows what the server has run and prepared by now.
            self._driver.close()
            if isinstance(error, psycopg.Error):
                raise Refused(told[-1].statement, told[-1].bound, error) from error
            raise
        for each, [answer] in zip(sent, answers, strict=True):
            self._check(each, answer)
            # A statement that was prepared stays so, also when the transaction is rolled back.
            self._prepared.add(each.statement.name)
        return answers[-1][0]

    def _send(self, told: list[_Told], new: set[bytes]) -> Iterator[_Told]:
        """Send these, preparing those that are `new`; what each answer will be about."""
        for each in told:
            name = each.statement.name
            if name in new:
                new.discard(name)
                self._libpq.send_prepare(name, each.statement.sql.encode())
                yield each
            self._libpq.send_query_prepared(name, each.dumped)
            yield each

    def _check(self, told: _Told, result: Any) -> None:
        if result.status in _GOOD:
            return
        error = error_from_result(result)
        if error.sqlstate in _STALE:
            self._driver.close()
        raise Refused(told.statement, told.bound, error)


def _answers(libpq: Any, count: int) -> Generator[Any, Any, list[list[Any]]]:
    """Send what was written, and read an answer to each; the last one only says that these were all."""
    yield from generators.send(libpq)
    answers: list[list[Any]] = []
    while len(answers) <= count:
        answers.append((yield from generators.fetch_many(libpq)))
    return answers[:count]
