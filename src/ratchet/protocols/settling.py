"""What becomes of a step when an attempt has ended: one transaction with its status, its policies and its events.

Until then the step needs QA and its attempt counts as not settled, so a process that dies before leaves it to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.kernel import Outcome, StepStatus
from ratchet.ledger import Transaction, change_step
from ratchet.ledger.clarifications import Clarification
from ratchet.ledger.protocol_steps import ProtocolStep, change_protocol_step, get_protocol_step
from ratchet.loop import Attempted
from ratchet.projects.clarifying import waits_for_answers
from ratchet.projects.secrets import secret_names
from ratchet.protocols.ci import settle_commit
from ratchet.protocols.moves import RESTS_ON_RECORDING, again, move_step
from ratchet.protocols.outputs import listed, output_paths
from ratchet.protocols.policies import Behavior, apply_triggers, read_policies
from ratchet.protocols.qa import Route, feedback, route
from ratchet.protocols.rebasing import NAME as REBASE
from ratchet.protocols.stream import Stream

ASKS, CODEMACHINE = "_blocked_clarifications", "codemachine"
EXEC_FAILED, QA_FAILED, QA_PASSED, QA_SKIPPED = "exec_failed", "qa_failed", "qa_passed", "qa_skipped_policy"


def settle(
    stream: Stream, step: ProtocolStep, done: Attempted, *, published: bool, versions: Mapping[str, str]
) -> None:
    """Record the end of an attempt at a step.

    `published` says whether the remote has the commit, and `versions` which prompts it was made with.
    """
    with stream.job.write() as tx:
        now = get_protocol_step(tx, step.step_id)
        if now.status is StepStatus.RUNNING:
            # It was put in line again before its last attempt was settled, or only to be judged.
            move_step(tx, now, StepStatus.NEEDS_QA, done.reason)
        elif now.status is not StepStatus.NEEDS_QA:
            # Somebody decided otherwise meanwhile: approved, cancelled.
            return
        state = {**(now.runtime_state or {}), "qa_requested": False}
        if not (now.runtime_state or {}).get("qa_requested"):
            state["settled"] = state.get("settled", 0) + 1
        if done.session.get("engine") not in (None, REBASE):
            state["author"] = done.session["engine"]
        change_protocol_step(tx, step.step_id, runtime_state=state)
        now = get_protocol_step(tx, step.step_id)
        if done.kept:
            _kept(tx, stream, now, done, published=published, versions=versions)
        elif done.outcome is Outcome.FAILED and done.verdict is not None and done.verdict.passed:
            _moved(tx, stream, now, done)
        else:
            _not_passed(tx, stream, now, done, versions)


def refuse(stream: Stream, step: ProtocolStep, reason: str, *, event: str) -> None:
    """A step that cannot even be tried has failed, for a reason that somebody has to see to."""
    with stream.job.write() as tx:
        now = get_protocol_step(tx, step.step_id)
        if now.status not in (StepStatus.RUNNING, StepStatus.NEEDS_QA):
            return
        asks = event.endswith(ASKS)
        if asks and not blocking_questions(tx, stream, step.step_id):
            # The answer has just come, and whoever gave it found nothing to resume.
            return
        to = StepStatus.BLOCKED if asks else StepStatus.FAILED
        move_step(tx, now, to, reason)
        state = dict(now.runtime_state or {})
        if not asks:
            # Whoever has it done again means all of it.
            state.pop("qa_requested", None)
        change_protocol_step(tx, now.step_id, summary=reason[:500], runtime_state=state)
        stream.event(tx, event, reason, step_id=now.step_id)


def blocking_questions(tx: Transaction, stream: Stream, step_id: int) -> list[Clarification]:
    """What a step waits for. Nobody answers until the transaction ends."""
    return [
        each
        for phase in ("execution", "qa")
        for each in waits_for_answers(tx, stream.project.id, phase, stream.protocol.run_id, step_id)
    ]


def _kept(
    tx: Transaction,
    stream: Stream,
    step: ProtocolStep,
    done: Attempted,
    *,
    published: bool,
    versions: Mapping[str, str],
) -> None:
    state = {
        key: value
        for key, value in (step.runtime_state or {}).items()
        if key not in ("fixes", "feedback", "goes_on", "rebase", "ci", "failed_for")
    }
    waits = published and _waits_for_ci(tx, stream)
    change_protocol_step(
        tx,
        step.step_id,
        commit=done.commit,
        awaits_ci=waits,
        runtime_state=state,
        summary=done.reason[:500],
    )
    step = get_protocol_step(tx, step.step_id)
    skipped = _policy(step) == "skip"
    if ((step.spec or {}).get("metadata") or {}).get("source") == CODEMACHINE:
        _told(tx, stream, step, done, "codemachine_step_completed", f"{step.name} is done", versions)
    _told(tx, stream, step, done, "step_completed", f"{step.name} is done", versions)
    passed = QA_SKIPPED if skipped else QA_PASSED
    _told(tx, stream, step, done, passed, done.reason, versions)
    if waits:
        stream.event(
            tx, "ci_awaited", f"{step.name} waits for CI on {(done.commit or '')[:12]}", step_id=step.step_id
        )
        # The forge may have been quicker than this transaction.
        settle_commit(tx, stream.job.runtime, stream.project, done.commit or "")
        return
    change_step(tx, step.step_id, StepStatus.COMPLETED, expected=(StepStatus.NEEDS_QA,), reason=done.reason)
    for reason in ("exec_completed", passed):
        apply_triggers(
            tx,
            get_protocol_step(tx, step.step_id),
            reason,
            max_depth=stream.job.runtime.settings.protocols.trigger_depth,
        )


def _moved(tx: Transaction, stream: Stream, step: ProtocolStep, done: Attempted) -> None:
    """It passed, but another step was kept meanwhile: the change is brought onto the branch as it is now."""
    stream.event(tx, "step_rebased", done.reason, step_id=step.step_id, attempt_id=done.attempt_id)
    change = {"base": done.incumbent, "commit": done.commit}
    again(tx, step, done.reason, rebase=change, goes_on=None)


def _not_passed(
    tx: Transaction, stream: Stream, step: ProtocolStep, done: Attempted, versions: Mapping[str, str]
) -> None:
    judged = done.verdict is not None
    event = "qa_failed" if judged else "step_execution_failed"
    _told(tx, stream, step, done, event, done.reason, versions)
    if _is_recorded(done) and not stream.protocol.simulated:
        # Nobody can mend that, so no policy is asked.
        move_step(tx, step, StepStatus.FAILED, RESTS_ON_RECORDING)
        change_protocol_step(tx, step.step_id, summary=RESTS_ON_RECORDING)
        return
    reason = QA_FAILED if judged else EXEC_FAILED
    state = step.runtime_state or {}
    settings = stream.job.runtime.settings.protocols
    fixes = state.get("fixes", 0)
    text = feedback(stream.job.ledger.artifacts, done.verdict, done.reason)
    loops = [each for each in read_policies(step.policy) if each.behavior is Behavior.LOOP]
    if any(each.concerns(reason) for each in loops):
        way = Route.BLOCK
    else:
        way = route(done.verdict, done.failure, fixes_done=fixes, fixes_allowed=settings.fixes)
    if way is Route.RETRY and judged and done.commit is not None:
        # Its author has done its part: only the judges are asked again.
        state = {**state, "fixes": fixes + 1, "qa_requested": True}
        change_protocol_step(tx, step.step_id, runtime_state=state)
        stream.event(tx, "step_retry", done.reason, step_id=step.step_id, attempt_id=done.attempt_id)
        return
    if way in (Route.FIX, Route.RETRY):
        stream.event(tx, f"step_{way}", done.reason, step_id=step.step_id, attempt_id=done.attempt_id)
        again(
            tx,
            step,
            f"{way}: {done.reason}",
            fixes=fixes + 1,
            feedback=text,
            goes_on={"base": done.incumbent, "commit": done.commit} if way is Route.FIX else None,
            rebase=None,
        )
        return
    move_step(tx, step, StepStatus.BLOCKED if way is Route.ESCALATE else StepStatus.FAILED, done.reason)
    change_protocol_step(tx, step.step_id, summary=done.reason[:500])
    if loops and way is Route.BLOCK:
        # A loop resets other steps, so it is decided when none is at work: see `deciding`.
        remembered = {**state, "failed_for": reason, "feedback": text}
        change_protocol_step(tx, step.step_id, runtime_state=remembered)
        return
    apply_triggers(tx, get_protocol_step(tx, step.step_id), reason, max_depth=settings.trigger_depth)


def _is_recorded(done: Attempted) -> bool:
    return bool(done.session.get("simulated")) or (done.verdict is not None and done.verdict.simulated)


def _waits_for_ci(tx: Transaction, stream: Stream) -> bool:
    """By default where checks are required and can be told of: without a secret, every webhook would be refused."""
    settings = stream.job.runtime.settings.protocols
    if settings.ci != "auto":
        return settings.ci == "required"
    heard = settings.webhook_secret is not None or "webhook_secret" in secret_names(tx, stream.project.id)
    return heard and bool(stream.project.facts.get("required_checks"))


def _policy(step: ProtocolStep) -> str:
    return ((step.spec or {}).get("qa") or {}).get("policy") or "full"


def _told(
    tx: Transaction,
    stream: Stream,
    step: ProtocolStep,
    done: Attempted,
    event: str,
    message: str,
    versions: Mapping[str, str],
) -> None:
    data: dict[str, Any] = {
        "commit": done.commit,
        "engine_id": done.session.get("engine"),
        "model": done.session.get("model"),
        "prompt_versions": dict(versions),
    }
    if event.endswith("step_completed") and done.commit is not None:
        files = stream.clone.repository.list_files(done.commit)
        directories = {path.rpartition("/")[0] for path in files}
        data["outputs"] = listed(output_paths(step, stream.root, lambda path: path in directories))
    stream.event(tx, event, message, step_id=step.step_id, attempt_id=done.attempt_id, data=data)
