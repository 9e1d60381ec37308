"""Backup and restore: the whole ledger as one file that either database can take in."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.ledger.backup._backup import BackupReport, backup
    from ratchet.ledger.backup._restore import RestoreReport, restore
else:
    __getattr__ = on_demand(__name__)

__all__ = ["BackupReport", "RestoreReport", "backup", "restore"]
