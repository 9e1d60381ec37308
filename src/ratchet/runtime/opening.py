"""Opening a ledger and a runtime as the settings say. Every face begins here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.ledger import Ledger

if TYPE_CHECKING:
    from ratchet.config import Loaded, Settings
    from ratchet.ledger import Budgets
    from ratchet.runtime.kinds import Kinds
    from ratchet.runtime.runtime import Runtime


def open_ledger(loaded: Loaded) -> Ledger:
    return Ledger.open(loaded.settings.database_url.reveal(), loaded.home / "artifacts")


def open_runtime(loaded: Loaded, ledger: Ledger, kinds: Kinds | None = None) -> Runtime:
    """The runtime on `ledger`, with every installed kind of job unless others are given."""
    # Loaded here: a command that only reads needs the ledger and no runtime.
    from ratchet.runtime.kinds import Kinds
    from ratchet.runtime.runtime import Runtime

    return Runtime(ledger, loaded.settings, Kinds.installed() if kinds is None else kinds)


def configured_budgets(settings: Settings) -> Budgets:
    from ratchet.ledger import Budgets

    scopes = settings.budgets
    return Budgets(
        scopes.policy,
        {"attempt": scopes.attempt.limits, "run": scopes.run.limits, "project": scopes.project.limits},
    )
