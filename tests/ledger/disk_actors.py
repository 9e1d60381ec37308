"""What is done on small and read-only disks; each returns what it found, as JSON."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ratchet.files import sync_file_system
from ratchet.kernel import LedgerError
from ratchet.ledger import Ledger
from ratchet.ledger.backup import backup
from ratchet.ledger.check import check
from ratchet.ledger.tables import artifacts
from ratchet.workspaces import Repository


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
    """Commit artifacts and commits with their refs, and copy the disk as it is then: a power cut would leave as much.

    The hashes of all of them, in their order.
    """
    repository = Repository.create(directory / "repo.git", workspaces=directory / "workspaces")
    sync_file_system(directory)
    with Ledger.open(f"sqlite:///{directory / 'ledger.db'}", directory / "artifacts") as ledger, repository:
        base = repository.commit_files({"a.txt": b"a"}, parent=None, message="first")
        repository.advance("refs/heads/main", base, expected=None)
        kept = []
        for number in range(20):
            with repository.workspace(base) as workspace:
                (workspace.path / "a.txt").write_text(f"{number}")
                commit = workspace.commit(f"{number}").hash
            with ledger.write() as tx:
                # Every other one is large.
                content = f"{number} {os.urandom(1000 + number % 2 * 50_000).hex()}".encode()
                kept.append(ledger.artifacts.put(tx, content, name=commit).sha256)
                tx.add_file(repository.ref_file(f"refs/trials/{number:03}", commit))
        shutil.copyfile(directory.parent / "image", directory.parent / "cut")
        return kept


def open_after_cut(directory: Path) -> dict[str, Any]:
    """What a power cut has left: the artifacts that are whole, and what is wrong with the ledger and the repository."""
    git = ["git", "--git-dir", str(directory / "repo.git")]
    with Ledger.open(f"sqlite:///{directory / 'ledger.db'}", directory / "artifacts") as ledger:
        with ledger.read() as tx:
            rows = tx.connection.execute(
                sa.select(artifacts.c.sha256, artifacts.c.name).order_by(artifacts.c.id)
            )
            told = [(row.sha256, row.name) for row in rows]
        refs = subprocess.run(
            [*git, "for-each-ref", "--format=%(objectname)"], capture_output=True, text=True, check=True
        )
        fsck = subprocess.run(
            [*git, "fsck", "--strict", "--no-dangling", "main"], capture_output=True, text=True, check=False
        )
        return {
            "whole": [sha256 for sha256, _ in told if ledger.artifacts.read(sha256)],
            "named": {commit for _, commit in told} < set(refs.stdout.split()),
            "check": [finding.what for finding in check(ledger).findings],
            "fsck": fsck.stdout + fsck.stderr,
        }
