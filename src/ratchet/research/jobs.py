"""The jobs of research. Every process knows the kind; only the one that does the work needs what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratchet.ledger import Run, Transaction
    from ratchet.runtime import JobContext, Kinds, Runtime
    from ratchet.runtime.runtime import RunActions

KIND = "research.run"
VERIFY = "research.verify"
"""Measures the trial of a certificate again."""


def add_kinds(kinds: Kinds) -> None:
    kinds.add(KIND, _run)
    kinds.add(VERIFY, _verify)
    kinds.add_run("research", _actions)
    kinds.at_start(_report_nodes)


def _report_nodes(runtime: Runtime) -> None:
    if runtime.settings.sets("placement"):
        from ratchet.placement import nodes_in_use

        runtime.reports["nodes"] = lambda: nodes_in_use(runtime.settings)


def _actions(_tx: Transaction, _run: Run) -> RunActions:
    from ratchet.runtime.runtime import RunActions

    return RunActions(resume=_resume)


def _resume(tx: Transaction, runtime: Runtime, run: Run, reason: str) -> None:
    from ratchet.kernel import Conflict
    from ratchet.runtime.runs import resume_any

    if run.status.final:
        raise Conflict(
            f"run {run.id} is {run.status}; only a paused or blocked one can be resumed",
            hint="start a new one with `ratchet research run`",
        )
    resume_any(tx, runtime, run, reason)


async def _run(job: JobContext) -> Any:
    from ratchet.research.supervisor import research_run

    return await research_run(job)


async def _verify(job: JobContext) -> Any:
    from ratchet.research.verification import verification_run

    return await verification_run(job)
