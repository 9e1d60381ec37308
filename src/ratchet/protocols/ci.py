"""CI and protocols: whether it passed a commit, what it does to the steps that wait for it, and how it is shown.

The newest commit that was pushed speaks for every step that waits, since it holds them all; any other commit speaks
for the step whose it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.forges import CheckState, ForgeCheck, provider_of
from ratchet.kernel import JobId, RunStatus, StepStatus
from ratchet.ledger import Transaction, change_run, change_step
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import (
    CiCheck,
    Protocol,
    ProtocolStep,
    change_protocol_step,
    checks_of,
    get_protocol,
    get_protocol_step,
    list_protocol_steps,
    put_check,
    runs_of_commit,
)
from ratchet.ledger.runs import lock_run
from ratchet.operations import described
from ratchet.protocols.feedback import CiFailure, feedback
from ratchet.protocols.jobs import block_run, complete_step, move_step, wake
from ratchet.protocols.policies import apply_triggers, read_policies
from ratchet.protocols.stream import forge_of
from ratchet.runtime import Runtime
from ratchet.runtime.job import unfinished_jobs

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
    known = {name: detail.get(name) for name in ("job", "step", "log_tail", "outcome")}
    return {"check": check.name, "url": check.url, **known}


def _named(check: CiCheck) -> str:
    place = where(check)
    inside = ", ".join(each for each in (place["job"], place["step"]) if each and each != check.name)
    return f"{check.name} ({inside})" if inside else check.name


CI_FAILED = "ci_failed"
"""The reason that policies of a step get when CI failed it."""


def hold(tx: Transaction, project_id: int) -> None:
    """Be alone with the CI of a project until the transaction ends.

    Otherwise two checks that pass at the same moment would each wait for the other, for ever.
    """
    tx.lock_keys(f"ci:{project_id}")


def settle_commit(tx: Transaction, runtime: Runtime, project: Project, commit: str) -> JobId | None:
    """Do to waiting steps what the checks of a commit say by now; the carrier that was called, if any.

    Also called where a step begins to wait for CI, in the same transaction: the forge may have been quicker.
    """
    hold(tx, project.id)
    job_id: JobId | None = None
    for run_id in runs_of_commit(tx, project.id, commit):
        # Before its steps, in the order in which everybody else takes them.
        lock_run(tx, run_id)
        protocol = get_protocol(tx, run_id)
        steps = list_protocol_steps(tx, run_id)
        own = [each for each in steps if each.commit == commit]
        waiting = [each for each in steps if _waits(each)] if protocol.pushed == commit else []
        job_id = settle_steps(tx, runtime, project, protocol, commit, own, waiting) or job_id
    return job_id


def settle_steps(
    tx: Transaction,
    runtime: Runtime,
    project: Project,
    protocol: Protocol,
    commit: str,
    own: Sequence[ProtocolStep],
    waiting: Sequence[ProtocolStep] = (),
) -> JobId | None:
    """Do what the checks of `commit` say to the steps whose it is, and to those that wait for whatever was pushed."""
    verdict = judge_checks(checks_of(tx, project.id, [commit]), required_checks(project))
    if protocol.status.final or verdict.state is CheckState.PENDING:
        return None
    if verdict.state is CheckState.PASSED:
        chosen = {each.step_id: each for each in (*own, *waiting)}.values()
        changed = [_pass(tx, runtime, protocol, each, commit) for each in chosen]
    else:
        changed = [_fail(tx, runtime, protocol, each, commit, verdict) for each in own or waiting[-1:]]
    runs = any(changed) and get_protocol(tx, protocol.run_id).status is RunStatus.RUNNING
    return wake(tx, runtime, protocol.run_id) if runs else None


def _pass(tx: Transaction, runtime: Runtime, protocol: Protocol, step: ProtocolStep, commit: str) -> bool:
    state = dict(step.runtime_state or {})
    # A newer commit of the step would have to be judged by itself.
    failed_here = (
        step.status is StepStatus.FAILED
        and _ci(state).get("commit") == commit
        and step.commit in (None, commit)
    )
    if not (_waits(step) or failed_here):
        return False
    if failed_here:
        # CI was run again and has passed: what it failed is as good as if it had passed at once.
        _unblock(tx, protocol, _ci(state).get("reason"))
    for name in ("ci", "failed_for", "feedback"):
        state.pop(name, None)
    if runtime.settings.protocols.qa_on_ci and state.get("ci_reviewed") != commit:
        _tell(
            tx,
            protocol,
            step,
            "qa_enqueued",
            "CI passed, so it is reviewed once more",
            {"source": "ci_webhook"},
        )
        if not _skips_qa(step):
            state = {**state, "ci_reviewed": commit, "qa_requested": True}
            _wait_no_more(tx, step, state)
            if failed_here:
                move_step(tx, step, StepStatus.RUNNING, "CI passed")
                change_step(tx, step.step_id, StepStatus.NEEDS_QA, expected=(StepStatus.RUNNING,))
            return True
        _tell(tx, protocol, step, "qa_skipped_policy", "its policy wants no review")
    _wait_no_more(tx, step, state)
    complete_step(tx, step, "CI passed")
    depth = runtime.settings.protocols.trigger_depth
    for reason in ("exec_completed", "qa_skipped_policy" if _skips_qa(step) else "qa_passed"):
        apply_triggers(tx, get_protocol_step(tx, step.step_id), reason, max_depth=depth)
    return True


def _fail(
    tx: Transaction,
    runtime: Runtime,
    protocol: Protocol,
    step: ProtocolStep,
    commit: str,
    verdict: CiVerdict,
) -> bool:
    # One that is being reviewed is in the hands of its carrier, who asks for the verdict when it begins to wait.
    idle = step.status is StepStatus.NEEDS_QA and not unfinished_jobs(tx, protocol.run_id)
    if not (_waits(step) or idle):
        return False
    failed = [where(each) for each in verdict.failed]
    state = {
        **(step.runtime_state or {}),
        "ci": {"commit": commit, "reason": verdict.reason, "failed": failed},
        "feedback": _feedback(runtime, verdict.reason, failed),
        "failed_for": CI_FAILED,
    }
    _wait_no_more(tx, step, state, summary=verdict.reason[:500])
    move_step(tx, step, StepStatus.FAILED, verdict.reason)
    _tell(tx, protocol, step, CI_FAILED, verdict.reason, {"commit": commit, "failed": failed})
    if not _carrier_may_act(runtime, protocol, step):
        block_run(tx, protocol.run_id, verdict.reason)
    return True


def _carrier_may_act(runtime: Runtime, protocol: Protocol, step: ProtocolStep) -> bool:
    """Whether a policy of the step, or a further fix by its author, is still possible."""
    fixes = (step.runtime_state or {}).get("fixes", 0)
    left = protocol.automatic and fixes < runtime.settings.protocols.fixes
    return protocol.status is RunStatus.RUNNING and (left or bool(read_policies(step.policy)))


def _unblock(tx: Transaction, protocol: Protocol, reason: object) -> None:
    if protocol.status is RunStatus.BLOCKED and reason and str(reason) in (protocol.reason or ""):
        change_run(
            tx, protocol.run_id, RunStatus.RUNNING, expected=(RunStatus.BLOCKED,), reason="CI has passed now"
        )


def _wait_no_more(tx: Transaction, step: ProtocolStep, state: Mapping[str, Any], **more: Any) -> None:
    change_protocol_step(tx, step.step_id, awaits_ci=False, runtime_state=dict(state), **more)


def _feedback(runtime: Runtime, reason: str, failed: list[dict[str, Any]]) -> str:
    """The feedback to the author about checks that failed."""
    known = [
        CiFailure(each["check"], each["job"], each["step"], each["log_tail"] or "", each["url"])
        for each in failed
    ]
    return feedback(runtime.ledger.artifacts, None, reason, known)


def _waits(step: ProtocolStep) -> bool:
    return step.status is StepStatus.NEEDS_QA and step.awaits_ci


def _skips_qa(step: ProtocolStep) -> bool:
    qa = (step.spec or {}).get("qa") or {}
    return qa.get("policy") == "skip"


def _ci(state: Mapping[str, Any]) -> Mapping[str, Any]:
    found = state.get("ci")
    return found if isinstance(found, dict) else {}


def _tell(
    tx: Transaction,
    protocol: Protocol,
    step: ProtocolStep,
    type: str,
    message: str,
    data: Mapping[str, Any] | None = None,
) -> None:
    tx.event(
        type,
        run_id=protocol.run_id,
        project_id=protocol.project_id,
        step_id=step.step_id,
        message=message,
        data={"spec_hash": protocol.spec_hash, **(data or {})},
    )


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The newest word of one check; `job`, `step` and `log_tail` say where it failed, as far as the forge told."""

    check: str
    url: str | None
    job: Any
    step: Any
    log_tail: Any
    outcome: Any
    state: str
    provider: str
    at: int


@dataclass(frozen=True, slots=True)
class CommitChecks:
    commit: str
    steps: list[str]
    state: str
    waiting: list[str] = field(metadata=described("required checks that have not said their last word"))
    checks: list[CheckResult]


@dataclass(frozen=True, slots=True)
class Ci:
    protocol_run_id: int
    pushed: str | None
    pull_request: Any
    required_checks: list[str]
    commits: list[CommitChecks]


def ci_summary(tx: Transaction, protocol: Protocol) -> Ci:
    """The newest word of each check about each commit that counts: those of steps, and the last that was pushed."""
    required = required_checks(get_project(tx, protocol.project_id))
    steps = list_protocol_steps(tx, protocol.run_id)
    commits = list(dict.fromkeys(filter(None, [*(each.commit for each in steps), protocol.pushed])))
    found = checks_of(tx, protocol.project_id, commits)

    def summary(commit: str) -> CommitChecks:
        own = [each for each in found if each.commit == commit]
        verdict = judge_checks(own, required)
        return CommitChecks(
            commit,
            [each.name for each in steps if each.commit == commit],
            str(verdict.state),
            list(verdict.waiting),
            [
                CheckResult(**where(each), state=each.state, provider=each.provider, at=each.at)
                for each in own
            ],
        )

    return Ci(
        protocol.run_id, protocol.pushed, protocol.pull_request, list(required), [*map(summary, commits)]
    )


# A check that is not done yet must not outrank the word that a webhook brings of its end.
_EARLIER_THAN_ANY = 0


async def ask_forge(runtime: Runtime, run_id: int, *, actor: str) -> None:
    """Take what the forge says about the commits that wait for CI, as if it had sent it. Raises `ForgeError`."""
    project, commits = await asyncio.to_thread(_waiting, runtime, run_id)
    if not commits:
        return
    forge = await asyncio.to_thread(forge_of, runtime, project)
    with runtime.ledger.read() as tx:
        asked_at = tx.now
    said = [(commit, await forge.checks(commit)) for commit in commits]
    await asyncio.to_thread(_take, runtime, project, said, asked_at, actor)


def _waiting(runtime: Runtime, run_id: int) -> tuple[Project, list[str]]:
    """The commits that speak for steps that wait: the last that was pushed, and their own."""
    with runtime.ledger.read() as tx:
        protocol = get_protocol(tx, run_id)
        waiting = [each for each in list_protocol_steps(tx, run_id) if each.awaits_ci]
        commits = [protocol.pushed, *(each.commit for each in waiting)] if waiting else []
        return get_project(tx, protocol.project_id), list(dict.fromkeys(filter(None, commits)))


def _take(
    runtime: Runtime,
    project: Project,
    said: list[tuple[str, tuple[ForgeCheck, ...]]],
    asked_at: int,
    actor: str,
) -> None:
    host = (project.remote or "").partition("/")[0]
    provider = project.ci_provider or provider_of(host) or "forge"
    with runtime.ledger.write(actor=actor) as tx:
        hold(tx, project.id)
        for commit, checks in said:
            for check in checks:
                put_check(
                    tx,
                    project.id,
                    commit,
                    check.name,
                    provider=provider,
                    state=str(check.state),
                    at=_EARLIER_THAN_ANY if check.state is CheckState.PENDING else asked_at,
                    url=check.url,
                )
            settle_commit(tx, runtime, project, commit)
