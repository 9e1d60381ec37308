"""What CI says about a protocol, for people: by commit, and by check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ratchet.ledger import Transaction
from ratchet.ledger.ci import CiCheck, checks_of
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocol_steps import list_protocol_steps
from ratchet.ledger.protocols import Protocol
from ratchet.protocols.ci.verdict import judge_checks, required_checks, where


def ci_summary(tx: Transaction, protocol: Protocol) -> dict[str, Any]:
    """The newest word of each check about each commit that counts: those of steps, and the last that was pushed."""
    required = required_checks(get_project(tx, protocol.project_id))
    steps = list_protocol_steps(tx, protocol.run_id)
    commits = list(dict.fromkeys([each.commit for each in steps if each.commit] + [protocol.pushed]))
    known = [each for each in commits if each is not None]
    found = checks_of(tx, protocol.project_id, known)
    return {
        "protocol_run_id": protocol.run_id,
        "pushed": protocol.pushed,
        "pull_request": protocol.pull_request,
        "required_checks": list(required),
        "commits": [
            _commit(
                commit,
                [each.name for each in steps if each.commit == commit],
                [each for each in found if each.commit == commit],
                required,
            )
            for commit in known
        ],
    }


def _commit(commit: str, steps: list[str], checks: list[CiCheck], required: Iterable[str]) -> dict[str, Any]:
    verdict = judge_checks(checks, tuple(required))
    return {
        "commit": commit,
        "steps": steps,
        "state": str(verdict.state),
        "waiting": list(verdict.waiting),
        "checks": [
            {**where(each), "state": each.state, "provider": each.provider, "at": each.at} for each in checks
        ],
    }
