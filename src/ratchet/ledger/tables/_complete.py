"""Every table: what migrations, checks and backups go by."""

# Imported because each adds its tables to `metadata`.
# ruff: noqa: F401

from __future__ import annotations

from ratchet.ledger._columns import apply_condition
from ratchet.ledger.tables import _jobs, _research, _runs, _tools
from ratchet.ledger.tables._runs import metadata

__all__ = ["metadata"]

for table in metadata.tables.values():
    for index in table.indexes:
        apply_condition(index)
