"""Opening a ledger and a runtime as the settings say. Every face begins here."""

from __future__ import annotations

from ratchet.config import Loaded, Settings
from ratchet.ledger import Budgets, Ledger
from ratchet.runtime.kinds import Kinds
from ratchet.runtime.runtime import Runtime


def open_ledger(loaded: Loaded) -> Ledger:
    return Ledger.open(loaded.settings.database_url.reveal(), loaded.home / "artifacts")


def open_runtime(loaded: Loaded, ledger: Ledger, kinds: Kinds | None = None) -> Runtime:
    """The runtime on `ledger`, with every installed kind of job unless others are given."""
    return Runtime(ledger, loaded.settings, Kinds.installed() if kinds is None else kinds)


def configured_budgets(settings: Settings) -> Budgets:
    scopes = settings.budgets
    return Budgets(
        scopes.policy,
        {"attempt": scopes.attempt.limits, "run": scopes.run.limits, "project": scopes.project.limits},
    )
