"""Whether CI has passed a commit. Every check that is required must have; one that failed is enough to fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.forges import CheckState
from ratchet.ledger.ci import CiCheck
from ratchet.ledger.projects import Project

# A check of the pull request goes under its own name, so that it cannot hide that of the push.
_ALSO = ("", " (pull_request)", " (merge request)")
_FINE = (CheckState.PASSED, CheckState.NEUTRAL)


@dataclass(frozen=True, slots=True)
class CiVerdict:
    """What all checks of a commit come to. `waiting` names those that have not spoken yet."""

    state: CheckState
    failed: tuple[CiCheck, ...] = ()
    waiting: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        if self.state is CheckState.FAILED:
            return f"CI failed: {', '.join(_named(each) for each in self.failed)}"
        if self.state is CheckState.PASSED:
            return "CI passed"
        return f"CI has not spoken yet: {', '.join(self.waiting) or 'no check'}"


def required_checks(project: Project) -> tuple[str, ...]:
    """The checks that a project requires; none means every one that is reported."""
    named = project.facts.get("required_checks")
    return tuple(each for each in named if isinstance(each, str) and each) if isinstance(named, list) else ()


def judge_checks(checks: Iterable[CiCheck], required: Sequence[str]) -> CiVerdict:
    """The verdict on one commit, of which these are all checks that are known."""
    known = list(checks)
    if required:
        of = {
            name: [each for each in known if each.name in [name + also for also in _ALSO]]
            for name in required
        }
        counted = [each for found in of.values() for each in found]
        silent = [name for name, found in of.items() if not found]
    else:
        counted, silent = known, []
    failed = tuple(each for each in counted if each.state == CheckState.FAILED)
    if failed:
        return CiVerdict(CheckState.FAILED, failed)
    waiting = [*silent, *(each.name for each in counted if each.state not in _FINE)]
    if waiting or not any(each.state == CheckState.PASSED for each in counted):
        return CiVerdict(CheckState.PENDING, waiting=tuple(waiting))
    return CiVerdict(CheckState.PASSED)


def where(check: CiCheck) -> dict[str, Any]:
    """What the next attempt should know about a check that failed."""
    detail = check.detail if isinstance(check.detail, dict) else {}
    told = {name: detail.get(name) for name in ("job", "step", "log_tail", "outcome")}
    return {"check": check.name, "url": check.url, **told}


def _named(check: CiCheck) -> str:
    place = where(check)
    inside = ", ".join(each for each in (place["job"], place["step"]) if each and each != check.name)
    return f"{check.name} ({inside})" if inside else check.name
