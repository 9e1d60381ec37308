"""A whole protocol as it is shown: its steps with how each has fared, what is asked, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.ledger.clarifications import list_blockers_of_run
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocol_steps import list_protocol_steps
from ratchet.ledger.protocols import get_protocol
from ratchet.ledger.runs import newest_attempts
from ratchet.protocols.ci import ci_summary
from ratchet.protocols.views.advice import advice
from ratchet.protocols.views.clarifications import clarification_record
from ratchet.protocols.views.protocols import protocol_record
from ratchet.protocols.views.steps import step_record
from ratchet.runtime.job_rows import unfinished_jobs

if TYPE_CHECKING:
    from ratchet.ledger import Attempt, Transaction

_PHASES = ("planning", "execution", "qa")


def overview(tx: Transaction, run_id: int) -> dict[str, Any]:
    """Raises `NotFound`. `next` has commands, each with what it is for."""
    protocol = get_protocol(tx, run_id)
    steps = list_protocol_steps(tx, run_id)
    states = {each["commit"]: each["state"] for each in ci_summary(tx, protocol)["commits"] if each["checks"]}
    questions = [] if protocol.status.final else list_blockers_of_run(tx, run_id, _PHASES)
    in_line = bool(unfinished_jobs(tx, run_id))
    project = get_project(tx, protocol.project_id)
    # That of a repository on this machine is a path.
    has_forge = project.remote is not None and not project.remote.startswith("/")
    tries = {each.step_id: each for each in newest_attempts(tx, run_id)}
    judged = [number for number, last in tries.items() if last.verdict is not None]
    told = advice(protocol, steps, questions, judged=judged, in_line=in_line, has_forge=has_forge)
    return {
        **protocol_record(protocol, brief=True),
        "project": project.name,
        "branch": protocol.name,
        "steps": [
            {
                **step_record(step),
                **_tried(tries.get(step.step_id)),
                "ci": "pending" if step.awaits_ci else states.get(step.commit),
            }
            for step in steps
        ],
        "questions": [clarification_record(each) for each in questions],
        "in_line": in_line,
        "next": [{"command": each.command, "why": each.why} for each in told],
    }


def _tried(last: Attempt | None) -> dict[str, Any]:
    """How often a step was tried, and what was said of the last try."""
    return {
        "attempts": 0 if last is None else last.number,
        "outcome": None if last is None or last.outcome is None else str(last.outcome),
        "verdict": None if last is None else last.verdict,
    }
