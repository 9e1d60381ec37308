"""Backup and restore: the whole ledger as one file that either database can take in."""

from ratchet.ledger.backup._backup import BackupReport, backup
from ratchet.ledger.backup._restore import RestoreReport, restore

__all__ = ["BackupReport", "RestoreReport", "backup", "restore"]
