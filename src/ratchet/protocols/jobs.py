"""The jobs of protocols. Every process knows the kinds; only the one that does the work needs what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.ledger import Run, Transaction
    from ratchet.runtime import JobContext, Kinds, Runtime
    from ratchet.runtime.kinds import RunActions

CARRY = "protocol"
AUDIT = "spec_audit"
IMPORT = "codemachine_import"


def add_kinds(kinds: Kinds) -> None:
    kinds.add(CARRY, _carry)
    kinds.add(AUDIT, _audit)
    kinds.add(IMPORT, _import)
    kinds.add_run("protocol", _actions)
    kinds.at_start(_keep_schedule)


async def _carry(job: JobContext) -> object:
    from ratchet.protocols.carrying import carry

    return await carry(job)


def _actions(tx: Transaction, run: Run) -> RunActions:
    from ratchet.ledger.protocols import is_protocol
    from ratchet.protocols.actions import cancel_protocol, pause_protocol, resume_protocol
    from ratchet.runtime.kinds import RunActions

    # The onboarding of a project is a run of this kind too, but no protocol.
    if not is_protocol(tx, run.id):
        return RunActions()
    return RunActions(pause_protocol, resume_protocol, cancel_protocol)


async def _audit(job: JobContext) -> object:
    from ratchet.protocols.spec.audit import audit

    return await audit(job)


async def _import(job: JobContext) -> object:
    from ratchet.protocols.import_job import import_in_job

    return await import_in_job(job)


def _keep_schedule(runtime: Runtime) -> None:
    from ratchet.protocols.audit_schedule import keep_schedule

    keep_schedule(runtime)
