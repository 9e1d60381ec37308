"""The outcome of an attempt at a step: kept, fixed, retried, rebased, shown to a person or blocked.

Status, policies and events are one transaction. Until it is committed the step needs QA and its attempt counts as not
settled, so the next process takes over from one that dies.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.engines import Failure, Request, Session, SessionFailed
from ratchet.engines.engine import Capabilities, EventKind, Readiness, Transcript
from ratchet.kernel import Misuse, Outcome, StepStatus, Verdict, decoded, exact_bytes
from ratchet.ledger import Transaction, change_step
from ratchet.ledger.protocols import ProtocolStep, change_protocol_step, get_protocol_step
from ratchet.ledger.questions import Clarification
from ratchet.loop import Attempted
from ratchet.projects.clarifications import waits_for_answers
from ratchet.projects.secrets import secret_names
from ratchet.protocols.ci import settle_commit
from ratchet.protocols.feedback import feedback
from ratchet.protocols.jobs import RESTS_ON_RECORDING, again, move_step
from ratchet.protocols.policies import Behavior, apply_triggers, read_policies
from ratchet.protocols.stream import Stream, pack_branch, record_branch
from ratchet.workspaces.git import find_git, run_git


class AttemptRoute(StrEnum):
    FIX = "fix"
    """The findings go back to the author, who continues from the commit that failed."""
    RETRY = "retry"
    """Nothing is wrong with the work as far as is known: retry from the branch."""
    ESCALATE = "escalate"
    """A person has to decide."""
    BLOCK = "block"
    """Trying again changes nothing: something is missing, or used up."""


# Those that a retry may fix.
_PASSING = (Failure.RATE_LIMITED, Failure.TIMEOUT, Failure.CRASHED, Failure.BAD_OUTPUT)
_NEEDS_A_PERSON = (
    "contract.touched",
    "secrets.secrets",
    "review.unclear",
    "review.session_bad_output",
)


def route(
    verdict: Verdict | None, failure: Failure | None, *, fixes_done: int, fixes_allowed: int
) -> AttemptRoute:
    """Where an attempt that was not kept goes. `fixes_done` are the tries so far that were not the first."""
    wanted = _wanted(verdict, failure)
    if wanted in (AttemptRoute.FIX, AttemptRoute.RETRY) and fixes_done >= fixes_allowed:
        return AttemptRoute.BLOCK
    return wanted


def _wanted(verdict: Verdict | None, failure: Failure | None) -> AttemptRoute:
    if failure is not None:
        return AttemptRoute.RETRY if failure in _PASSING else AttemptRoute.BLOCK
    if verdict is None:
        return AttemptRoute.RETRY
    measured = verdict.measurements
    if any(measured.get(name, 0.0) > 0 for name in _NEEDS_A_PERSON):
        return AttemptRoute.ESCALATE
    if verdict.outcome is Outcome.FAILED:
        return AttemptRoute.FIX
    if verdict.outcome is Outcome.PASSED:
        # It was passed and still not kept: the branch moved, or it was a recording that moves none.
        return AttemptRoute.BLOCK if verdict.simulated else AttemptRoute.RETRY
    return AttemptRoute.BLOCK if _is_stuck(measured) else AttemptRoute.RETRY


def _is_stuck(measured: Mapping[str, float]) -> bool:
    """Whether a judge lacks something that a further try will not bring."""
    lasting = (f"review.session_{each}" for each in Failure if each not in _PASSING)
    return any(measured.get(name, 0.0) > 0 for name in ("checks.missing", *lasting))


ASKS, CODEMACHINE = "_blocked_clarifications", "codemachine"
EXEC_FAILED, QA_FAILED, QA_PASSED, QA_SKIPPED = "exec_failed", "qa_failed", "qa_passed", "qa_skipped_policy"


def settle(
    stream: Stream, step: ProtocolStep, done: Attempted, *, published: bool, versions: Mapping[str, str]
) -> None:
    """Record the end of an attempt at a step.

    `published` says whether the remote has the commit, and `versions` which prompts it was made with.
    """
    judged_again = (step.runtime_state or {}).get("qa_requested")
    pack = pack_branch(stream, done.commit) if done.kept and done.commit and judged_again else None
    with stream.job.write() as tx:
        now = get_protocol_step(tx, step.step_id)
        if now.status is StepStatus.RUNNING:
            # It was queued again before its last attempt was settled, or only to be judged.
            move_step(tx, now, StepStatus.NEEDS_QA, done.reason)
        elif now.status is not StepStatus.NEEDS_QA:
            # A person decided otherwise meanwhile: approved, cancelled.
            return
        state = {**(now.runtime_state or {}), "qa_requested": False}
        if not (now.runtime_state or {}).get("qa_requested"):
            state["settled"] = state.get("settled", 0) + 1
        if done.session.get("engine") not in (None, REBASE):
            state["author"] = done.session["engine"]
        change_protocol_step(tx, step.step_id, runtime_state=state)
        now = get_protocol_step(tx, step.step_id)
        if done.kept:
            record_branch(tx, stream, done.commit or "", pack)
            _kept(tx, stream, now, done, published=published, versions=versions)
        elif done.outcome is Outcome.FAILED and done.verdict is not None and done.verdict.passed:
            _moved(tx, stream, now, done)
        else:
            _not_passed(tx, stream, now, done, versions)


def refuse(stream: Stream, step: ProtocolStep, reason: str, *, event: str) -> None:
    """A step that cannot even be tried has failed, for a reason that a person has to see to."""
    with stream.job.write() as tx:
        now = get_protocol_step(tx, step.step_id)
        if now.status not in (StepStatus.RUNNING, StepStatus.NEEDS_QA):
            return
        asks = event.endswith(ASKS)
        if asks and not blocking_questions(tx, stream, step.step_id):
            # The answer has just come, and there was nothing to resume yet.
            return
        to = StepStatus.BLOCKED if asks else StepStatus.FAILED
        move_step(tx, now, to, reason)
        state = dict(now.runtime_state or {})
        if not asks:
            # Running it again means all of it.
            state.pop("qa_requested", None)
        change_protocol_step(tx, now.step_id, summary=reason[:500], runtime_state=state)
        stream.event(tx, event, reason, step_id=now.step_id)


def blocking_questions(tx: Transaction, stream: Stream, step_id: int) -> list[Clarification]:
    """What a step waits for. No answer is taken until the transaction ends."""
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
        _record(tx, stream, step, done, "codemachine_step_completed", f"{step.name} is done", versions)
    _record(tx, stream, step, done, "step_completed", f"{step.name} is done", versions)
    passed = QA_SKIPPED if skipped else QA_PASSED
    _record(tx, stream, step, done, passed, done.reason, versions)
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
    _record(tx, stream, step, done, event, done.reason, versions)
    if _is_recorded(done) and not stream.protocol.simulated:
        # That cannot be fixed, so no policy applies.
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
        way = AttemptRoute.BLOCK
    else:
        way = route(done.verdict, done.failure, fixes_done=fixes, fixes_allowed=settings.fixes)
    if way is AttemptRoute.RETRY and judged and done.commit is not None:
        # Its author has done its part: only the judges are asked again.
        state = {**state, "fixes": fixes + 1, "qa_requested": True}
        change_protocol_step(tx, step.step_id, runtime_state=state)
        stream.event(tx, "step_retry", done.reason, step_id=step.step_id, attempt_id=done.attempt_id)
        return
    if way in (AttemptRoute.FIX, AttemptRoute.RETRY):
        stream.event(tx, f"step_{way}", done.reason, step_id=step.step_id, attempt_id=done.attempt_id)
        again(
            tx,
            step,
            f"{way}: {done.reason}",
            fixes=fixes + 1,
            feedback=text,
            goes_on={"base": done.incumbent, "commit": done.commit} if way is AttemptRoute.FIX else None,
            rebase=None,
        )
        return
    move_step(
        tx, step, StepStatus.BLOCKED if way is AttemptRoute.ESCALATE else StepStatus.FAILED, done.reason
    )
    change_protocol_step(tx, step.step_id, summary=done.reason[:500])
    if loops and way is AttemptRoute.BLOCK:
        # A loop resets other steps, so it is decided when none is at work: see `deciding`.
        remembered = {**state, "failed_for": reason, "feedback": text}
        change_protocol_step(tx, step.step_id, runtime_state=remembered)
        return
    apply_triggers(tx, get_protocol_step(tx, step.step_id), reason, max_depth=settings.trigger_depth)


def _is_recorded(done: Attempted) -> bool:
    return bool(done.session.get("simulated")) or (done.verdict is not None and done.verdict.simulated)


def _waits_for_ci(tx: Transaction, stream: Stream) -> bool:
    """By default where checks are required and can be reported: without a secret, every webhook would be refused."""
    settings = stream.job.runtime.settings.protocols
    if settings.ci != "auto":
        return settings.ci == "required"
    if not stream.project.facts.get("required_checks"):
        return False
    return settings.webhook_secret is not None or "webhook_secret" in secret_names(tx, stream.project.id)


def _policy(step: ProtocolStep) -> str:
    return ((step.spec or {}).get("qa") or {}).get("policy") or "full"


def _record(
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


LOG = "log.md"


def output_paths(step: ProtocolStep, root: str, exists: Callable[[str], bool]) -> dict[str, str]:
    """Where the session's text goes, by the name of the output: `protocol` and those of `aux`.

    A path belongs to the protocol's folder, unless only the repository has the directory that it names.
    """
    outputs = (step.spec or {}).get("outputs") or {}
    named: dict[str, str] = {}
    if outputs.get("protocol"):
        named["protocol"] = outputs["protocol"]
    named.update(outputs.get("aux") or {})
    return {name: _place(path, root, exists) for name, path in named.items()}


def write_outputs(workspace: Path, session: Session, step: ProtocolStep, root: str) -> None:
    """Write them into the author's workspace. Raises `SessionFailed` where something is in the way."""
    log = workspace / root / LOG
    if log.is_file() and not log.is_symlink():
        when = datetime.fromtimestamp(session.ended_at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        _append(log, f"- {when} - {step.name} executed\n")
    for path in output_paths(step, root, lambda path: (workspace / path).is_dir()).values():
        _write(workspace, path, session)


def _place(path: str, root: str, exists: Callable[[str], bool]) -> str:
    own = PurePosixPath(root, path)
    parent = str(PurePosixPath(path).parent)
    if parent != "." and not exists(str(own.parent)) and exists(parent):
        return path
    return str(own)


def _append(log: Path, line: str) -> None:
    with log.open("a+", encoding="utf-8", errors="replace") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(file.tell() - 1)
            line = line if file.read(1) == "\n" else "\n" + line
        file.write(line)


def _write(workspace: Path, path: str, session: Session) -> None:
    target = workspace / path
    parent = target.parent
    # The author may have put a link where the output goes; nothing is written through it.
    parent.mkdir(parents=True, exist_ok=True)
    if not parent.resolve().is_relative_to(workspace.resolve()) or target.is_symlink() or target.is_dir():
        raise SessionFailed(
            Failure.BAD_OUTPUT, f"something is in the way of the step's output {path}", session=session
        )
    target.write_text(session.text if session.text.endswith("\n") else session.text + "\n", encoding="utf-8")


def listed(paths: Mapping[str, str]) -> dict[str, Any]:
    """The outputs as events tell them."""
    aux = {name: path for name, path in paths.items() if name != "protocol"}
    return {"protocol": paths.get("protocol"), "aux": aux}


REBASE = "rebase"
_SECTION = re.compile(r"^(?=diff --git )", re.MULTILINE)


class RebaseEngine:
    """Applies `patch`, or says why it does not fit. What it makes is judged like any other change."""

    name = REBASE
    capabilities = Capabilities(edits_files=True)

    def __init__(self, patch: str) -> None:
        self._patch = patch

    async def propose(self, request: Request) -> Session:
        if request.workspace is None:
            raise Misuse("a change can only be applied to a workspace")
        transcript = Transcript(request)
        complaint = await asyncio.to_thread(_apply, request.workspace, self._patch)
        said = complaint or "the change fits"
        transcript.say(EventKind.MESSAGE, said)
        session = Session(REBASE, text=said, transcript=transcript.content)
        if complaint:
            message = f"the change does not fit onto the branch any more: {complaint}"
            raise SessionFailed(Failure.BAD_OUTPUT, message, session=session)
        return session

    async def check(self) -> Readiness:
        return Readiness(True, find_git())


def without(patch: str, path: str) -> str:
    """The patch without what it does to one file."""
    sections = _SECTION.split(patch)
    return "".join(each for each in sections if not each.startswith(f"diff --git a/{path} b/{path}\n"))


def _apply(workspace: Path, patch: str) -> str | None:
    """Apply it, all or nothing; what is wrong if it cannot be."""
    # Nothing of a repository further up: this is a plain directory of files.
    above = str(workspace.parent)
    words = ("apply", "--whitespace=nowarn", "-")
    done = run_git(workspace, *words, given=exact_bytes(patch), GIT_CEILING_DIRECTORIES=above)
    return None if done.returncode == 0 else decoded(done.stderr).strip()[:2000]
