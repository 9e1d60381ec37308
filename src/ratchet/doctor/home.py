"""Probes of an installation: the ledger as it is, the engines and extras, and the addresses of servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import sqlalchemy as sa

from ratchet.agents.addresses import announced
from ratchet.config import Loaded
from ratchet.config.load import ports_to_try
from ratchet.doctor.machine import ProbeCheck
from ratchet.engines.providers import unused_addresses
from ratchet.engines.registry import EngineContext, Looked, engine_names, look_at
from ratchet.extras import PURPOSES, find_extra, install_line
from ratchet.kernel import Conflict, LedgerError, RatchetError
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger.bucket import Bucket
from ratchet.ledger.database import REVISIONS, current_revision, database_now_ms, make_engine, translated
from ratchet.ledger.ledger import refuse_half_restored
from ratchet.ledger.tables import triggers
from ratchet.ledger.transaction import Remembered
from ratchet.runtime import list_processes
from ratchet.runtime.addresses import server_addresses

# A whole read of a larger file would take longer than a person waits for a doctor.
LARGE_BYTES = 1024**3
_MAKE = "run `ratchet init`"
_STORE_SECONDS = 5.0


def ledger(loaded: Loaded) -> list[ProbeCheck]:
    """Whether the ledger answers, its schema, its health, and who works on it."""
    url = loaded.settings.database_url
    if url.path is not None and not url.path.exists():
        return [ProbeCheck("ledger", "warn", f"there is none yet at {url.path}", _MAKE)]
    try:
        refuse_half_restored(loaded.home)
        with translated(url.reveal()), _reading(url.reveal(), url.path) as connection:
            reached = _sqlite(connection, url.path) if url.path else _postgresql(connection, str(url))
            return [*reached, *_contents(connection, loaded)]
    except (LedgerError, Conflict) as error:
        return [ProbeCheck("ledger", "fail", str(error), error.hint)]


def artifact_store(loaded: Loaded) -> list[ProbeCheck]:
    """Whether an artifact store, if one is set, takes and gives back what it should."""
    url = loaded.settings.artifacts.url
    if url is None:
        return []
    name = "artifact store"
    try:
        milliseconds = Bucket(url, patience_seconds=_STORE_SECONDS).probe()
    except RatchetError as error:
        return [ProbeCheck(name, "fail", str(error), error.hint)]
    return [ProbeCheck(name, "ok", f"{url} keeps and gives back a probe in {milliseconds:.0f} ms")]


@contextlib.contextmanager
def _reading(url: str, path: Path | None) -> Iterator[sa.Connection]:
    """A connection that cannot write."""
    if path is None:
        engine = make_engine(url)
    else:
        place = f"{path.absolute().as_uri()}?mode=ro"
        engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(place, uri=True))
    try:
        with engine.connect() as connection:
            if path is None:
                connection.execution_options(postgresql_readonly=True)
            yield connection
    finally:
        engine.dispose()


def _sqlite(connection: sa.Connection, path: Path) -> list[ProbeCheck]:
    size = path.stat().st_size
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    version = sqlite3.sqlite_version
    detail = f"SQLite {version}, {size / 1024**2:.1f} MiB at {path}, journal mode {mode}"
    if mode == "wal":
        return [ProbeCheck("ledger", "ok", detail), _integrity(connection, size)]
    fix = "start Ratchet once with write access: it sets write-ahead logging itself"
    return [ProbeCheck("ledger", "warn", detail, fix), _integrity(connection, size)]


def _integrity(connection: sa.Connection, size: int) -> ProbeCheck:
    if size > LARGE_BYTES:
        fix = "run `ratchet ledger check`, which reads the whole file"
        return ProbeCheck("ledger integrity", "warn", "not looked at: the file is large", fix)
    found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if found != "ok":
        return ProbeCheck(
            "ledger integrity", "fail", str(found), "restore a backup: `ratchet ledger restore FILE`"
        )
    return ProbeCheck("ledger integrity", "ok", "quick check found no damage")


def _postgresql(connection: sa.Connection, shown: str) -> list[ProbeCheck]:
    version = connection.exec_driver_sql("SHOW server_version").scalar_one()
    began = time.perf_counter()
    connection.exec_driver_sql("SELECT 1")
    milliseconds = (time.perf_counter() - began) * 1000
    return [ProbeCheck("ledger", "ok", f"PostgreSQL {version} at {shown} answers in {milliseconds:.1f} ms")]


def _contents(connection: sa.Connection, loaded: Loaded) -> list[ProbeCheck]:
    revision = current_revision(connection)
    newest = REVISIONS[-1]
    if revision is None:
        return [ProbeCheck("ledger schema", "warn", "the database holds no ledger yet", _MAKE)]
    if revision not in REVISIONS:
        detail = f"schema {revision} is newer than this Ratchet, which knows {newest}"
        return [ProbeCheck("ledger schema", "fail", detail, "upgrade Ratchet")]
    if revision != newest:
        detail = f"schema {revision}; the next command brings it to {newest}"
        return [
            ProbeCheck("ledger schema", "warn", detail, "make a backup first: `ratchet backup DIRECTORY`")
        ]
    artifacts = Ledger(loaded.settings.database_url.reveal(), loaded.home / "artifacts").artifacts
    tx = Transaction(connection, artifacts, Remembered(), actor="doctor", request_id=None)
    return [
        ProbeCheck("ledger schema", "ok", f"schema {revision}"),
        _processes(tx, connection, loaded),
        *_triggers(tx),
    ]


def _triggers(tx: Transaction) -> Iterator[ProbeCheck]:
    """Triggers that take nothing, since a variable that they name is not set."""
    if not tx.connection.scalar(sa.select(sa.exists().select_from(triggers))):
        return
    # Loaded here: few homes have triggers, and a doctor should be quick.
    from ratchet.workflows.triggers import list_triggers, unset_variables

    for trigger in list_triggers(tx):
        for name in unset_variables(trigger.source):
            yield ProbeCheck(
                f"trigger {trigger.name}",
                "warn",
                f"the variable {name} is not set here: without it, no message of this trigger is taken",
                f"set {name} where `ratchet serve` and `ratchet worker` are started",
            )


def _processes(tx: Transaction, connection: sa.Connection, loaded: Loaded) -> ProbeCheck:
    found = list_processes(tx)
    oldest = database_now_ms(connection) - loaded.settings.runtime.dead_after_seconds * 1000
    dead = [process for process in found if process.state == "dead" or process.beat_at < oldest]
    detail = f"{len(found) - len(dead)} alive, {len(dead)} dead"
    if not dead:
        return ProbeCheck("ledger processes", "ok", detail)
    names = ", ".join(process.id for process in dead)
    fix = "start `ratchet worker` or `ratchet serve`: it takes their jobs over"
    return ProbeCheck("ledger processes", "warn", f"{detail}: {names}", fix)


def extras() -> list[ProbeCheck]:
    """One check for each extra. None is needed by all: one that is absent is well, and says how to have it."""
    return [_check_extra(name) for name in PURPOSES]


def _check_extra(name: str) -> ProbeCheck:
    extra = find_extra(name)
    if not extra.absent:
        return ProbeCheck(f"extra {name}", "ok", f"installed, for {extra.purpose}")
    return ProbeCheck(
        f"extra {name}", "ok", f"not installed; it is for {extra.purpose}: {install_line(name)}"
    )


def engines(loaded: Loaded, environment: Mapping[str, str] | None = None) -> list[ProbeCheck]:
    """One check for each engine. One that is not ready is a warning: Ratchet needs only those that are used."""
    around = EngineContext(loaded.settings, loaded.home, os.environ if environment is None else environment)
    unused = unused_addresses(loaded.settings, around.environment)
    return [
        *(_check(each) for each in asyncio.run(look_at(engine_names(loaded.settings), around))),
        *(ProbeCheck("engine addresses", "warn", what, fix) for what, fix in unused),
    ]


def _check(looked: Looked) -> ProbeCheck:
    readiness = looked.readiness
    return ProbeCheck(
        f"engine {looked.name}", "ok" if readiness.ready else "warn", readiness.detail, readiness.fix
    )


def addresses(loaded: Loaded) -> list[ProbeCheck]:
    """Whether `ratchet serve` serves the API and the agents of this home, or could."""
    server, agents = loaded.settings.server, loaded.settings.agents
    running = [each.url for each in server_addresses(loaded.home)]
    hosted = announced(loaded.home)
    return [
        _check_address(loaded, "server", ", ".join(running), server.host),
        _check_address(loaded, "agents", hosted or "", agents.host),
    ]


def _check_address(loaded: Loaded, name: str, running: str, host: str) -> ProbeCheck:
    if running:
        return ProbeCheck(name, "ok", f"served at {running}")
    ports = ports_to_try(loaded, f"{name}.port")
    problem = _problem(host, ports[0])
    if problem is None:
        place = f"port {ports[0]}" if ports[0] else "any free port"
        return ProbeCheck(name, "ok", f"would be served at {place} of {host}")
    if len(ports) > 1 and _problem(host, 0) is None:
        return ProbeCheck(name, "ok", f"port {ports[0]} of {host} is taken: the next free one would be used")
    fix = f"set {name}.host and {name}.port, or stop the program that has the port"
    return ProbeCheck(name, "warn", f"cannot be served at port {ports[0]} of {host}: {problem}", fix)


def _problem(host: str, port: int) -> str | None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror
    return None
