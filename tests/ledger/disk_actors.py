"""What is done on small and read-only disks; each returns what it found, as JSON."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import LedgerError
from ratchet.ledger import ArtifactStore, Ledger
from ratchet.ledger.backup import backup
from ratchet.ledger.check import check


def try_open(directory: Path) -> dict[str, str]:
    try:
        ledger = Ledger.open(f"sqlite:///{directory / 'ledger.db'}", directory / "artifacts")
        with ledger, ledger.write() as tx:
            tx.event("written")
    except LedgerError as error:
        return told(error)
    return {"error": "none"}


def fill_disk(directory: Path) -> dict[str, Any]:
    """Write until the disk is full, look at what is left, make room, and write again."""
    ballast = directory / "ballast"
    ballast.write_bytes(b"\0" * 1_000_000)
    with Ledger.open(f"sqlite:///{directory / 'ledger.db'}", directory / "artifacts") as ledger:
        committed = 0
        try:
            while True:
                with ledger.write() as tx:
                    tx.event("counted", data={"number": committed, "text": os.urandom(10_000).hex()})
                committed += 1
        except LedgerError as error:
            full = told(error)
        kept = count(ledger)
        ballast.unlink()
        with ledger.write() as tx:
            tx.event("counted", data={"number": committed})
        return {
            "full": full,
            "committed": committed,
            "kept": kept,
            "after": count(ledger),
            "check": [finding.what for finding in check(ledger).findings],
        }


def fill_store(directory: Path) -> dict[str, Any]:
    """Put artifacts until the disk is full; the database is elsewhere."""
    ballast = directory / "ballast"
    ballast.write_bytes(b"\0" * 1_500_000)
    place = directory.parent
    with Ledger.open(f"sqlite:///{place / 'ledger.db'}", directory / "artifacts") as ledger:
        put = 0
        try:
            while True:
                with ledger.write() as tx:
                    ledger.artifacts.put(tx, os.urandom(700_000), name="large")
                put += 1
        except LedgerError as error:
            full = told(error)
        left = [file.name for file in (directory / "artifacts" / "incoming").iterdir()]
        findings = [finding.what for finding in check(ledger).findings]
        ballast.unlink()
        with ledger.write() as tx:
            ledger.artifacts.put(tx, os.urandom(700_000), name="large")
        with ledger.read() as tx:
            rows = tx.connection.execute(sa.text("SELECT count(*) FROM artifacts")).scalar()
    return {"full": full, "put": put, "left": left, "check": findings, "rows": rows}


def fill_backup(directory: Path) -> dict[str, Any]:
    """Take a backup that does not fit, over an older one that did."""
    place = directory.parent
    target = directory / "backup.tar.gz"
    with Ledger.open(f"sqlite:///{place / 'ledger.db'}", place / "artifacts") as ledger:
        with ledger.write() as tx:
            tx.event("small")
        backup(ledger, target)
        older = target.read_bytes()
        with ledger.write() as tx:
            for _ in range(4):
                ledger.artifacts.put(tx, os.urandom(1_000_000), name="large")
        try:
            backup(ledger, target)
            full = {"error": "none"}
        except LedgerError as error:
            full = told(error)
    return {
        "full": full,
        "older is intact": target.read_bytes() == older,
        "files": [file.name for file in directory.iterdir()],
    }


def told(error: LedgerError) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error), "hint": str(error.hint)}


def count(ledger: Ledger) -> int:
    with ledger.read() as tx:
        return int(tx.connection.execute(sa.text("SELECT count(*) FROM events")).scalar_one())


def copy_while_writing(directory: Path) -> list[str]:
    """Commit artifacts, and copy the disk as it is then: a power cut would leave as much. The hashes of all of them."""
    with Ledger.open(f"sqlite:///{directory / 'ledger.db'}", directory / "artifacts") as ledger:
        kept = []
        for number in range(40):
            with ledger.write() as tx:
                content = f"{number} {os.urandom(2000).hex()}".encode()
                kept.append(ledger.artifacts.put(tx, content, name=f"{number}").sha256)
        shutil.copyfile(directory.parent / "image", directory.parent / "cut")
        return kept


def open_after_cut(directory: Path) -> dict[str, Any]:
    """Open what a power cut has left: which artifacts were whole before and after, what is wrong with the ledger."""
    url, artifacts = f"sqlite:///{directory / 'ledger.db'}", directory / "artifacts"
    before = whole(Ledger(url, artifacts).artifacts)
    with Ledger.open(url, artifacts) as ledger:
        return {
            "before": before,
            "after": whole(ledger.artifacts),
            "check": [finding.what for finding in check(ledger).findings],
            "journals": [each.name for each in (artifacts / "journal").iterdir()],
        }


def whole(store: ArtifactStore) -> list[str]:
    found = []
    for sha256, _ in store.stored():
        with contextlib.suppress(LedgerError):
            store.read(sha256)
            found.append(sha256)
    return found
