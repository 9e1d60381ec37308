"""`ratchet ledger …`, `ratchet backup` and `ratchet restore`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import confirm, note, print_document
from ratchet.cli.progress import working
from ratchet.cli.session import configure_logs
from ratchet.cli.words import clock
from ratchet.kernel import LedgerCorrupt, Misuse
from ratchet.operations import record
from ratchet.runtime import open_ledger

if TYPE_CHECKING:
    from pydantic import SecretStr

    from ratchet.cli.session import CliSession
    from ratchet.config import Artifacts, Loaded
    from ratchet.ledger import Ledger
    from ratchet.ledger.backup import BackupReport
    from ratchet.ledger.check import LedgerFinding

_DAY_MS = 86_400_000
_WITH_KEYS = click.option(
    "--with-keys", is_flag=True, help="Hold secret.key and the token as well. Keep the backup secret."
)


@command(
    "backup",
    examples=["ratchet backup /mnt/backups", "ratchet backup /mnt/backups --with-keys --keep 30"],
    see=["restore", "ledger backup", "ledger check"],
)
@click.argument("directory", type=click.Path(path_type=Path), help="Where backups are kept, or shall be.")
@_WITH_KEYS
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="Remove all but the newest N backups afterwards."
)
@click.pass_obj
def backup_home(session: CliSession, directory: Path, with_keys: bool, keep: int | None) -> None:
    """Add a backup of the ledger and its home to a directory, which stores only what is new.

    Each backup is whole: rows, artifacts, ratchet.toml, and the agents, research, projects and evolution of the home,
    all of one moment. Others may continue working. Files that have not changed since the last one are not read.
    """
    from ratchet.ledger.backup import backup_into

    with existing_ledger(session, upgrade=False) as ledger, working("writing the backup"):
        report = backup_into(ledger, directory, keys=with_keys, keep=keep)
    removed = f" Removed: {', '.join(report.removed)}." if report.removed else ""
    _confirm_backup(session, report, f"{_size(report.bytes)} of it new.{removed}")


@command(
    examples=["ratchet ledger backup ledger.tar.gz", "ratchet ledger backup home.tar.gz --with-keys"],
    see=["backup", "ledger restore"],
)
@click.argument("file", type=click.Path(path_type=Path), help="The file to write, such as ledger.tar.gz.")
@click.option("--ledger-only", is_flag=True, help="Leave out the repositories and settings of the home.")
@_WITH_KEYS
@click.pass_obj
def backup(session: CliSession, file: Path, ledger_only: bool, with_keys: bool) -> None:
    """Write a backup of the ledger and its home to a file.

    It holds rows, artifacts, ratchet.toml, and the agents, research, projects and evolution of the home, all of one
    moment. Others may continue working. The file appears whole or not at all, and either database can take it in.
    """
    from ratchet.ledger.backup import backup as write_backup

    if ledger_only and with_keys:
        raise Misuse("--ledger-only leaves out the keys", hint="give one of the two")
    with existing_ledger(session, upgrade=False) as ledger, working("writing the backup"):
        report = write_backup(ledger, file, home=not ledger_only, keys=with_keys)
    _confirm_backup(session, report, f"{_size(report.bytes)} in all.")


def _confirm_backup(session: CliSession, report: BackupReport, size: str) -> None:
    _mention_losses(report.left_out)
    if report.files_left_out:
        note(
            f"warning: not in it, since they cannot be read or lead elsewhere: {', '.join(report.files_left_out)}"
        )
    rows = sum(report.rows.values())
    confirm(
        session,
        {**record(report), "path": str(report.path)},
        f"{report.path} holds {rows} rows, {report.artifacts} artifacts and {report.files} files; {size}",
    )


@command(
    examples=[
        "ratchet restore /mnt/backups",
        "ratchet restore /mnt/backups --number 12 --force",
        "ratchet restore ledger.tar.gz --database-url postgresql://ratchet@db.example.org/ratchet",
    ],
    see=["backup", "ledger check"],
)
@click.argument("backup", type=click.Path(path_type=Path), help="A directory of backups, or a file.")
@click.option(
    "--number", type=click.IntRange(min=1), metavar="N", help="Which backup of a directory; else the newest."
)
@click.option(
    "--force", is_flag=True, help="Replace a ledger that is not empty, and files of the home that differ."
)
@click.option("--ledger-only", is_flag=True, help="Leave the files of the home as they are.")
@click.pass_obj
def restore(session: CliSession, backup: Path, number: int | None, force: bool, ledger_only: bool) -> None:
    """Put a backup in the place of the ledger and of its home.

    Stop every server and worker first. Where there is no ledger yet, one is made. A ratchet.toml that is there stays.
    Backups of older versions are brought up to date.
    """
    from ratchet.ledger.restore import restore as put_back

    if not backup.exists():
        raise click.BadParameter(f"{str(backup)!r} does not exist.", param_hint="BACKUP")

    loaded = session.load()
    configure_logs(loaded)
    with _sound_ledger(loaded) as ledger, working("restoring"):
        report = put_back(
            ledger,
            backup,
            number=number,
            force=force,
            dead_after_seconds=loaded.settings.runtime.dead_after_seconds,
            ledger_only=ledger_only,
        )
    _mention_losses(report.left_out)
    rows = sum(report.rows.values())
    confirm(
        session,
        record(report),
        f"The ledger is as it was at {clock(report.taken_at)}: {rows} rows and {report.artifacts} artifacts.",
    )


@command(
    examples=["ratchet ledger check", "ratchet ledger check --json | jq .findings"],
    see=["doctor", "ledger restore"],
)
@click.pass_obj
def check(session: CliSession) -> int:
    """Check ledger, artifacts, repositories and keys for damage.

    Reads all of it and changes nothing; others may continue working. Finds commits, refs, versions of agents and keys
    that rows rely on and the home does not have. Exits with 1 if something is wrong.
    """
    # Each loaded where it is used: both build every table.
    from ratchet.ledger.check import check as look_over

    with existing_ledger(session) as ledger, working("reading the whole ledger"):
        settings = session.load().settings
        report = look_over(ledger, home=True, secret_key=lambda: _reveal(settings.projects.secret_key))
    if session.json:
        print_document({"ok": report.ok, "findings": [asdict(each) for each in report.findings]})
    else:
        _print_findings(report.findings)
    return 0 if report.ok else 1


@command(examples=["ratchet ledger vacuum"])
@click.pass_obj
def vacuum(session: CliSession) -> None:
    """Remove what the rules no longer keep, and shrink the file.

    The rules are artifacts.retention_days and artifacts.grace_minutes. Others may keep working; no run, step, trial or
    event is removed.
    """
    from ratchet.ledger.check import vacuum as give_back_room

    rules = session.load().settings.artifacts
    with existing_ledger(session) as ledger, working("tidying"):
        report = give_back_room(
            ledger, grace_seconds=rules.grace_minutes * 60, expire_before=_expire_before(rules, ledger)
        )
    if report.in_the_way:
        note(f"The file will shrink further once these are idle: {', '.join(report.in_the_way)}")
    gone = report.artifacts
    confirm(
        session,
        {**asdict(report), "bytes": report.bytes},
        f"{_size(report.bytes)} given back: {gone.files} artifact files ({_size(gone.bytes)}), "
        f"database {_size(report.database_bytes)}.",
    )


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _sound_ledger(loaded: Loaded) -> Ledger:
    try:
        return open_ledger(loaded, restoring=True)
    except LedgerCorrupt as error:
        place = loaded.settings.database_url.path or "the database"
        raise LedgerCorrupt(str(error), hint=f"move {place} away, then restore again") from error


def _expire_before(rules: Artifacts, ledger: Ledger) -> int | None:
    if rules.retention_days is None:
        return None
    return ledger.now_ms() - rules.retention_days * _DAY_MS


def _mention_losses(left_out: tuple[str, ...]) -> None:
    if left_out:
        note(
            f"warning: {len(left_out)} artifacts are not in it, since the ledger had lost them: {', '.join(left_out)}"
        )


def _print_findings(findings: tuple[LedgerFinding, ...]) -> None:
    for finding in findings:
        print(f"{finding.severity:7}  {finding.what}\n         to fix: {finding.fix}")
    if not findings:
        print("No damage found.")


def _size(count: int) -> str:
    for unit, length in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count} bytes"
