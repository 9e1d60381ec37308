"""What becomes of a variant that was judged: the new version, or one more that was not taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ratchet.kernel import NotFound, Outcome
from ratchet.kernel.semver import Bump
from ratchet.ledger import Transaction
from ratchet.ledger.runs import Run, get_attempt
from ratchet.ledger.tools import (
    ToolRow,
    ToolVersionStatus,
    VersionRow,
    add_version,
    find_version,
    promote_version,
    refuse_version,
    tools_by_id,
)
from ratchet.loop import Attempted
from ratchet.runtime import JobContext
from ratchet.tools.definition import Tool
from ratchet.workflows.evolution.author import CHANGE, EVOLVED, read_change
from ratchet.workflows.evolution.judge import IMPROVEMENT
from ratchet.workflows.evolution.parts import UnusableVariant, parts_of, with_parts
from ratchet.workflows.evolution.subject import Subject
from ratchet.workspaces import Repository


@dataclass(frozen=True, slots=True)
class EvolveRequest:
    """Which tool is to be better, why, and who is asked. `step` begins the names of its steps in the run."""

    tool: str
    folder: str = ""
    why: str = "it was requested"
    engine: str | None = None
    model: str | None = None
    step: str = ""


@dataclass(frozen=True, slots=True)
class Evolved:
    """What came of it. `version` is the one that is called now if `promoted`.

    `exhausted` says that the money or the time was gone before all tries were made.
    """

    tool: str
    promoted: bool
    why: str
    version: str | None = None
    improvement: float = 0.0
    tries: tuple[VariantTry, ...] = ()
    exhausted: bool = False

    @property
    def judged(self) -> bool:
        """Whether anything came to a verdict at all."""
        return any(each.judged for each in self.tries)

    def data(self) -> dict[str, Any]:
        """The outcome as a run keeps it."""
        return {**asdict(self), "judged": self.judged}


def given_up(wish: EvolveRequest, tried: list[VariantTry], why: str, *, exhausted: bool) -> Evolved:
    return Evolved(wish.tool, False, why, tries=tuple(tried), exhausted=exhausted)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTry:
    """How one try ended. `judged` says that it came to a verdict; a session that failed did not."""

    summary: str
    reason: str
    judged: bool
    promoted: bool = False
    version: str | None = None
    improvement: float = 0.0
    measurements: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None
    score: float | None = None
    session_id: int | None = None
    proposal: Any = None


def settle(
    job: JobContext, run: Run, subject: Subject, repository: Repository, ended: Attempted, engine: str
) -> VariantTry:
    """Record a try, and promote what passed. Doing it again after a crash changes nothing."""
    session = ended.session
    common: dict[str, Any] = {
        "session_id": session.get("id"),
        "proposal": (session.get("data") or {}).get("proposal"),
        "failure": None if ended.failure is None else str(ended.failure),
    }
    if ended.commit is None:
        return VariantTry(summary="no variant was made", reason=ended.reason, judged=False, **common)
    summary, bump, variant = _variant(repository, subject.tool, ended.commit)
    verdict = ended.verdict
    if verdict is None:
        return VariantTry(summary=summary, reason=ended.reason, judged=False, **common)
    measurements = dict(verdict.measurements)
    improvement = measurements.get(IMPROVEMENT, 0.0)
    kept = {
        "outcome": str(ended.outcome),
        "reason": ended.reason,
        "improvement": improvement,
        "measurements": measurements,
        "judge_hash": verdict.judge_hash,
        "report": verdict.report,
        "summary": summary,
        "engine": engine,
        "commit": ended.commit,
        "attempt_id": ended.attempt_id,
    }
    with job.write() as tx:
        version, reason = _recorded(tx, run, subject, variant, bump, ended, kept)
    return VariantTry(
        summary=summary,
        reason=reason,
        judged=ended.outcome is not Outcome.ERROR,
        promoted=ended.kept and version is not None and version.status is ToolVersionStatus.PROMOTED,
        version=None if version is None else version.version,
        improvement=improvement,
        measurements=measurements,
        score=verdict.score,
        **common,
    )


def _recorded(
    tx: Transaction,
    run: Run,
    subject: Subject,
    variant: Tool,
    bump: Bump,
    ended: Attempted,
    kept: dict[str, Any],
) -> tuple[VersionRow | None, str]:
    """The row of the variant and its record; no row for one that is the incumbent itself."""
    tool = tools_by_id(tx, [subject.row.id]).get(subject.row.id)
    if tool is None or variant.hash == subject.incumbent.hash:
        return None, ended.reason
    version = add_version(
        tx,
        tool,
        variant.data,
        variant.hash,
        bump=bump,
        parent_id=subject.incumbent.id,
        origin=EVOLVED,
        run_id=run.id,
        simulated=get_attempt(tx, ended.attempt_id).simulated,
    )
    if (version.verdict or {}).get("attempt_id") == ended.attempt_id:
        # A process wrote this down, and died before it could continue.
        return version, version.reason or ended.reason
    if (
        version.status is ToolVersionStatus.REFUSED
        and version.parent_id == subject.incumbent.id
        and not ended.kept
    ):
        # It was measured before; what was found then stays on record.
        return version, ended.reason
    obstacle = _obstacle(tool, subject) if ended.kept else ended.reason
    if obstacle is None:
        promote_version(
            tx, tool, version, expected=subject.incumbent.id, reason=ended.reason, verdict=kept, run_id=run.id
        )
    elif version.status in (ToolVersionStatus.CANDIDATE, ToolVersionStatus.REFUSED):
        refuse_version(tx, tool, version, obstacle, verdict=kept, run_id=run.id)
    else:
        return None, obstacle
    return find_version(tx, tool.id, variant.hash), obstacle or ended.reason


def _obstacle(tool: ToolRow, subject: Subject) -> str | None:
    """Why a variant that passed is not promoted all the same."""
    if tool.pinned_id is not None:
        return "passed, but the tool was pinned meanwhile"
    if tool.current_id != subject.incumbent.id:
        return "passed, but another version came into use meanwhile"
    return None


def _variant(repository: Repository, tool: Tool, commit: str) -> tuple[str, Bump, Tool]:
    """What the author says about its change, and the tool with it. One without usable files stays as it was."""
    try:
        summary, bump = read_change(repository.read_file(commit, CHANGE))
        texts = {name: repository.read_file(commit, name).decode() for name in parts_of(tool)}
    except (NotFound, UnicodeDecodeError):
        return "files that are no version of the tool", Bump.PATCH, tool
    try:
        return summary, bump, with_parts(tool, texts)
    except UnusableVariant:
        return summary, bump, tool
