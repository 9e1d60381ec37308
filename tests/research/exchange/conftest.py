"""Ledgers on both databases."""

from __future__ import annotations

from tests.ledger.conftest import (  # noqa: F401 - fixtures
    ledger,
    make_ledger,
    postgres_databases,
    sqlite_template,
)
