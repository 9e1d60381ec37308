"""Why there is no score, as the status of a trial: whose doing it was, and what it said."""

from __future__ import annotations

from ratchet.judges.deadline import OutOfTime
from ratchet.judges.endings import NOT_RUN, ended, last_words, over_time
from ratchet.judges.evaluator import Disqualified, EvaluatorFailed
from ratchet.judges.pinned import Changed
from ratchet.judges.trial import TrialBroken, TrialFailed
from ratchet.kernel import RatchetError, TrialStatus
from ratchet.research.measurement import Unmeasured
from ratchet.research.measuring.account import Account
from ratchet.research.measuring.excerpt import crash_excerpt
from ratchet.sandbox import Finished
from ratchet.workspaces import TooLarge, UnsafePath

FAILURES = (
    TrialFailed,
    TrialBroken,
    Disqualified,
    EvaluatorFailed,
    Changed,
    OutOfTime,
    RatchetError,
    OSError,
)
"""What can come up instead of a score. Everything else is a mistake of ours."""
_SAID = (
    TrialStatus.DISQUALIFIED,
    TrialStatus.SIZE_BLOCKED,
    TrialStatus.CRASH,
    TrialStatus.TRAIN_BUDGET_OVERRUN,
    TrialStatus.EVAL_BUDGET_OVERRUN,
)


def unmeasured(error: Exception, account: Account) -> Unmeasured:
    """What one of `FAILURES` means for the trial."""
    match error:
        case TrialFailed():
            return _trial_failed(error, account)
        case TrialBroken():
            # A function has no program that could be missing, and a command that has run before has one: whoever ends
            # with such a code now did so on purpose.
            there = account.has_run or not account.commands
            own_doing = error.finished.exit_code is not None and there
            status = TrialStatus.CRASH if own_doing else TrialStatus.INFRA_ERROR
            return Unmeasured(status, str(error), facts=account.facts(failed=error.finished))
        case Disqualified():
            return _disqualified(error, account)
        case EvaluatorFailed():
            return _evaluator_failed(error, account)
        case UnsafePath():
            return Unmeasured(TrialStatus.DISQUALIFIED, str(error), facts=account.facts())
        case TooLarge():
            return Unmeasured(TrialStatus.SIZE_BLOCKED, str(error), facts=account.facts())
    hint = error.hint if isinstance(error, RatchetError) else None
    reason = str(error) or type(error).__name__
    return Unmeasured(
        TrialStatus.INFRA_ERROR, f"{reason} ({hint})" if hint else reason, facts=account.facts()
    )


def _trial_failed(error: TrialFailed, account: Account) -> Unmeasured:
    finished = error.finished
    status, reason = TrialStatus.CRASH, str(error)
    if over_time(finished):
        status = TrialStatus.TRAIN_BUDGET_OVERRUN
    elif not finished.ok:
        reason = f"the trial: {_crash(finished, account)}"
        if account.no_room:
            status, reason = TrialStatus.INFRA_ERROR, f"the disk is full ({reason})"
    return Unmeasured(status, reason, facts=account.facts(failed=finished))


def _crash(finished: Finished, account: Account) -> str:
    def in_recipe(name: str) -> str | None:
        return account.recipe.file(name, account.roots)

    excerpt = crash_excerpt(finished.stderr, in_recipe, account.roots) or last_words(finished)
    return f"{ended(finished)}: {excerpt}" if excerpt else ended(finished)


def _disqualified(error: Disqualified, account: Account) -> Unmeasured:
    facts = account.facts(evaluator=error.finished)
    if error.status is not None and error.status not in _SAID:
        reason = f"the evaluator says {str(error)!r} with the unknown status {error.status[:50]!r}"
        return Unmeasured(TrialStatus.CRASH, reason, facts=facts)
    return Unmeasured(
        TrialStatus(error.status or TrialStatus.DISQUALIFIED),
        str(error),
        facts=facts,
        score=error.score,
        measurements=error.measurements,
    )


def _evaluator_failed(error: EvaluatorFailed, account: Account) -> Unmeasured:
    status = TrialStatus.CRASH
    if over_time(error.finished):
        status = TrialStatus.EVAL_BUDGET_OVERRUN
    elif error.finished.exit_code in NOT_RUN:
        status = TrialStatus.INFRA_ERROR
    return Unmeasured(status, str(error), facts=account.facts(evaluator=error.finished))
