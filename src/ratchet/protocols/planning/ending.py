"""The end of planning, in one transaction: the spec, the steps, the questions, the status, and what it took."""

from __future__ import annotations

from dataclasses import asdict

from ratchet.kernel import RunStatus
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.protocol_steps import add_protocol_steps
from ratchet.ledger.usage import total
from ratchet.projects.clarifying import ask
from ratchet.protocols.planning.branching import Begun
from ratchet.protocols.planning.decomposing import Decomposed
from ratchet.protocols.planning.errors import PlanFailed
from ratchet.protocols.planning.prompts import decomposer_rules, planner_rules
from ratchet.protocols.planning.proposing import Proposed
from ratchet.protocols.planning.sight import Sight
from ratchet.protocols.planning.spec import spec_of
from ratchet.protocols.planning.work import Work
from ratchet.protocols.spec import prompt_version, record_spec, spec_hash, step_rows


def end_planned(
    work: Work, begun: Begun, sight: Sight, proposed: Proposed, decomposed: Decomposed, commit: str
) -> None:
    """This is the moment in which the plan counts. Raises `StateChanged` when the run was stopped meanwhile."""
    run_id = work.protocol.run_id
    spec = spec_of(decomposed.plan)
    with work.job.write() as tx:
        change_run(
            tx, run_id, RunStatus.PLANNED, expected=(RunStatus.PLANNING,), reason="the plan was accepted"
        )
        problems = record_spec(tx, run_id, spec)
        if problems:
            raise PlanFailed("the plan makes no spec that can be carried out", problems=problems)
        rows = step_rows(spec)
        add_protocol_steps(tx, run_id, rows)
        _ask(tx, work, decomposed)
        _tell_decomposition(tx, work, decomposed)
        tx.event(
            "planned",
            run_id=run_id,
            project_id=work.project.id,
            message=f"{len(rows)} steps, committed as {commit[:12]}",
            data={
                "steps_created": len(rows),
                "steps": [row["name"] for row in rows],
                "commit": commit,
                "base_commit": begun.base,
                "engine": proposed.engine,
                "models": {
                    "planning": proposed.model,
                    "decompose": work.model("decompose") or proposed.model if decomposed.steps else None,
                },
                "prompt_versions": _prompt_versions(sight, decomposed),
                "spec_hash": spec_hash(spec),
                "repaired": list(proposed.repaired),
                "clarifications": [asked.key for asked in decomposed.plan.questions],
                "usage": asdict(total(tx, "run", run_id)),
            },
        )


def _ask(tx: Transaction, work: Work, decomposed: Decomposed) -> None:
    for asked in decomposed.plan.questions:
        ask(
            tx,
            work.project.id,
            asked.key,
            asked.question,
            options=list(asked.options) or None,
            recommended=asked.recommended,
            applies_to="execution",
            blocking=asked.blocking,
            run_id=work.protocol.run_id,
        )


def _tell_decomposition(tx: Transaction, work: Work, decomposed: Decomposed) -> None:
    about = {"run_id": work.protocol.run_id, "project_id": work.project.id}
    for name in decomposed.steps:
        tx.event("step_decomposed", message=f"{name} was taken apart", data={"step": name}, **about)
    for name, why in decomposed.failed.items():
        message = f"{name} stays as it was planned: {why}"
        tx.event("step_decomposition_failed", message=message, data={"step": name, "reason": why}, **about)


def _prompt_versions(sight: Sight, decomposed: Decomposed) -> dict[str, str]:
    versions = {"planning": prompt_version(planner_rules().encode())}
    if sight.guidance is not None:
        versions["guidance"] = prompt_version(sight.guidance.encode())
    if decomposed.steps:
        versions["decompose"] = prompt_version(decomposer_rules().encode())
    return versions
