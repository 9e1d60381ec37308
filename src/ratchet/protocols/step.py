"""One step: make an attempt, or judge again what there is, then record the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.engines import Engine, Request, Session
from ratchet.kernel import (
    BudgetExceeded,
    BudgetPolicy,
    Conflict,
    LedgerError,
    Limits,
    NotFound,
    Outcome,
    StateChanged,
    StepStatus,
    Superseded,
    decoded,
    exhausted,
    with_hint,
)
from ratchet.ledger import Transaction
from ratchet.ledger.protocols import ProtocolStep
from ratchet.ledger.questions import list_blockers
from ratchet.ledger.runs import unended_attempt
from ratchet.ledger.usage import Spender, accounts, stages_of_step
from ratchet.loop import RECORDED, Attempted, GitTrunk, Plan, attempt
from ratchet.projects.environments import Environment, stays_inside
from ratchet.protocols.engine_choice import PERSON, choose, session_author
from ratchet.protocols.outcome import LOG, REBASE, RebaseEngine, refuse, settle, without, write_outputs
from ratchet.protocols.qa import QaJudge, judge_step_commit, qa_judge
from ratchet.protocols.qa.checks import environment_of, environments_of, red_checks
from ratchet.protocols.spec.step_spec import prompt_version
from ratchet.protocols.stream import ProtocolBlocked, Stream, identity_of, publish
from ratchet.runtime import configured_budgets
from ratchet.runtime.attempts import ENDED
from ratchet.workspaces import PatchRefused, Repository, Workspace, WorkspaceKind

_LONGEST_FILE = 60_000
_RULES = """\
You carry out one step of a planned change. You work in a checkout of the branch, and what you leave in it is what
counts; somebody else commits it, so do not use git to commit, push or switch branches.

- Do what the step asks for, completely, and nothing beyond it.
- The files plan.md, 00-setup.md and the step files under {root}/ are a contract: never change them. You may add what
  the next step should know to {root}/context.md.
- Keep to the style of the repository. Add or adapt tests for what you change.
- Leave no scratch files behind, and put no secrets into files.
- Your change is then checked by {checks} and read by a reviewer who sees only the change. It is kept only if both pass.
- If the step cannot be done as it is written, say so plainly at the end instead of pretending.
"""
_TYPES = {"setup": "chore", "qa": "test"}


async def work_on(stream: Stream, step: ProtocolStep) -> None:
    """Do what a step at work needs: an attempt, or only a verdict. Raises what concerns the whole run."""
    try:
        await asyncio.to_thread(_require_answers, stream, step)
        if (step.runtime_state or {}).get("qa_requested"):
            done, versions = await judge_again(stream, step)
        else:
            done, versions = await _attempt(stream, step)
        published = done.kept and await publish(stream, done.commit or "")
    except ProtocolBlocked as blocked:
        if blocked.event.startswith("push"):
            # The step has passed and is kept; only the world does not know it yet.
            raise
        await asyncio.to_thread(refuse, stream, step, with_hint(blocked), event=blocked.event)
    except BudgetExceeded as error:
        await asyncio.to_thread(refuse, stream, step, with_hint(error), event="budget_exceeded")
    else:
        await asyncio.to_thread(settle, stream, step, done, published=published, versions=versions)


async def _attempt(stream: Stream, step: ProtocolStep) -> tuple[Attempted, dict[str, str]]:
    """How the attempt ended, and which versions of prompts it was made with."""
    head = await asyncio.to_thread(stream.clone.repository.resolve, stream.protocol.ref)
    environment = await environment_of(stream, head)
    plan, versions = await asyncio.to_thread(_plan, stream, step, environment)
    nth = (step.runtime_state or {}).get("settled", 0) + 1
    await asyncio.to_thread(_tell_started, stream, step, plan, versions, nth)
    try:
        return await attempt(stream.job, step.name, plan, nth=nth), versions
    except (BudgetExceeded, LedgerError, Superseded, StateChanged):
        raise
    except Exception as error:
        if exhausted(error) is not None:
            raise
        # It is on record as the end of the attempt, and comes back as that.
        return await attempt(stream.job, step.name, plan, nth=nth), versions


def _plan(stream: Stream, step: ProtocolStep, environment: Environment | None) -> tuple[Plan, dict[str, str]]:
    repository = stream.clone.repository
    head = repository.resolve(stream.protocol.ref)
    state = step.runtime_state or {}
    prompt = make_prompt(stream, step, head)
    choice = choose(stream.job.runtime.settings, stream.project, stream.protocol, step)
    engine = _rebase(stream, state["rebase"]) if state.get("rebase") else stream.open_engine(choice.engine)
    if engine.name != REBASE:
        require_room(stream, prompt)
    settings = stream.job.runtime.settings.protocols
    # Another engine may apply the change; it stays its author's.
    author = state.get("author", engine.name) if engine.name == REBASE else engine.name
    judge = judge_for(stream, step, base=head, author=author)
    trunk = GitTrunk(
        repository=repository,
        base=head,
        ref=stream.protocol.ref,
        message=commit_message(stream, step),
        author=identity_of(stream.project),
        kind=None if engine.name == REBASE else WorkspaceKind.WORKTREE,
        prepare=functools.partial(_go_on_from, stream, state.get("goes_on")),
        equip=None if environment is None else functools.partial(_equip, environment),
        finish=functools.partial(_finish, step=step, root=stream.root),
    )
    plan = Plan(
        trunk=trunk,
        engine=engine,
        request=Request(
            prompt.text,
            system=prompt.system,
            model=None if engine.name == REBASE else choice.model,
            deadline_seconds=settings.session_seconds,
            data={"step": step.name, "prompt_version": prompt.version},
        ),
        judge=judge,
        # Kept or not, what becomes of the step is said with its policies, in one transaction: see `outcome`.
        kept=StepStatus.NEEDS_QA,
        discarded=StepStatus.NEEDS_QA,
    )
    return plan, {"exec": prompt.version, **judge.prompt_versions}


def _tell_started(
    stream: Stream, step: ProtocolStep, plan: Plan, versions: Mapping[str, str], nth: int
) -> None:
    """Not of an attempt that was started before and is only resumed."""
    with stream.job.write() as tx:
        ended = len(stages_of_step(tx, step.step_id, ENDED))
        if ended >= nth or unended_attempt(tx, step.step_id) is not None:
            return
        engine, model = plan.engine.name, plan.request.model
        message = f"{step.name} is carried out by {engine}"
        data = {"engine_id": engine, "model": model, "prompt_versions": dict(versions)}
        stream.event(tx, "step_started", message, step_id=step.step_id, data=data)


def commit_message(stream: Stream, step: ProtocolStep) -> str:
    """`type(scope): subject [protocol-NNNN/XX]`."""
    number, _, slug = stream.protocol.name.partition("-")
    title = (step.spec or {}).get("name")
    if title in (None, step.name):
        title = step.agent.replace("-", " ")
    kind = _TYPES.get(step.step_type, "feat")
    subject = " ".join(str(title).split())[:60]
    return f"{kind}({slug or stream.protocol.name}): {subject} [protocol-{number}/{step.step_index:02d}]"


def _finish(workspace: Path, session: Session, *, step: ProtocolStep, root: str) -> None:
    write_outputs(workspace, session, step, root)


def _equip(environment: Environment, request: Request, workspace: Workspace) -> Request:
    """The project's environment around an author: to read, at the paths where the project expects it."""
    places = environment.places_at(workspace.path)
    for path, source in environment.copies.items():
        target = workspace.path / path
        is_wanted = path in environment.ignored and target.parent.is_dir() and not target.exists()
        if not is_wanted or not stays_inside(workspace.path, path):
            continue
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target, follow_symlinks=False)
    for target, source in places.items():
        if target == source:
            target.mkdir(parents=True, exist_ok=True)
    path = os.environ.get("PATH", os.defpath)
    return replace(
        request,
        environment={**request.environment, **environment.variables_at(workspace.path, path=path)},
        readable=(*request.readable, *environment.shown),
        places={**request.places, **places},
    )


def _rebase(stream: Stream, passed: dict[str, str]) -> Engine:
    return RebaseEngine(_change(stream, passed))


def _go_on_from(stream: Stream, last: dict[str, str] | None, workspace: Workspace) -> None:
    """Begin with what the last attempt made, as one change of the branch; with the branch itself if it does not fit."""
    if last is not None:
        with contextlib.suppress(PatchRefused):
            workspace.apply(_change(stream, last))


def _change(stream: Stream, made: dict[str, str]) -> str:
    """What an attempt changed. Its line of the log is written again, so that it cannot conflict with the others."""
    patch = stream.clone.repository.diff(made["base"], made["commit"])
    return without(patch, f"{stream.root}/{LOG}")


def _require_answers(stream: Stream, step: ProtocolStep) -> None:
    with stream.job.ledger.read() as tx:
        waiting = [
            each
            for phase in ("execution", "qa")
            for each in list_blockers(
                tx, stream.project.id, phase, run_id=stream.protocol.run_id, step_id=step.step_id
            )
        ]
    if waiting:
        keys = ", ".join(each.key for each in waiting)
        raise ProtocolBlocked(
            f"{step.name} waits for an answer to {keys}",
            event="execution_blocked_clarifications",
            hint=f"ratchet project answer {stream.project.id} {waiting[0].key} ANSWER",
        )


_CHARACTERS_PER_TOKEN = 4


def require_room(stream: Stream, prompt: Prompt) -> None:
    """Raises `BudgetExceeded` for a prompt that alone is more than a strict budget has left; others only tell."""
    estimate = max(1, math.ceil(len(prompt.system + prompt.text) / _CHARACTERS_PER_TOKEN))
    with stream.job.write() as tx:
        for scope, number, limit, used, policy in _budgets(tx, stream):
            if policy is BudgetPolicy.OFF or used + estimate <= limit:
                continue
            if policy is BudgetPolicy.STRICT:
                raise BudgetExceeded(scope, number, "tokens", used + estimate, limit)
            message = f"the prompt has about {estimate} tokens, and {max(0, limit - used)} are left of {scope} {number}"
            stream.event(tx, "budget_warning", message)


def _budgets(tx: Transaction, stream: Stream) -> Iterator[tuple[str, object, int, int, BudgetPolicy]]:
    """Each budget that is limited in tokens: its scope, whose it is, its limit, what was used, and what it does."""
    defaults = configured_budgets(stream.job.runtime.settings)
    own = defaults.limits.get("attempt", Limits()).tokens
    if own is not None:
        yield "attempt", "of this step", own, 0, defaults.policy
    scopes = Spender(None, stream.protocol.run_id, stream.project.id).scopes()
    for each in accounts(tx, scopes, defaults):
        if each.limits.tokens is not None:
            yield each.scope, each.scope_id, each.limits.tokens, each.spent.tokens, each.policy


def judge_for(
    stream: Stream, step: ProtocolStep, *, base: str, author: str | None, model: str | None = None
) -> QaJudge:
    """The judge of a step's commit. Raises `ProtocolBlocked` when it cannot be made, before anything is spent.

    Without an author it is a person's work. `model` is the author's, if it is known; else the one that the step would
    be carried out with.
    """
    choice = choose(stream.job.runtime.settings, stream.project, stream.protocol, step)
    return qa_judge(
        settings=stream.job.runtime.settings,
        surroundings=stream.surroundings,
        project=stream.project,
        protocol=stream.protocol,
        step=step,
        repository=stream.clone.repository,
        base=base,
        author=session_author(choice, author, model, stream.surroundings) if author else PERSON,
        feedback=(step.runtime_state or {}).get("feedback") or "",
        red=red_checks(stream),
        environments=environments_of(stream),
        placement=stream.placement,
    )


async def judge_again(stream: Stream, step: ProtocolStep) -> tuple[Attempted, dict[str, str]]:
    """The verdict on the newest commit of the step, kept if it passes and fits, and the versions of the prompts."""
    last = await asyncio.to_thread(_last, stream, step)
    repository = stream.clone.repository
    head = await asyncio.to_thread(repository.resolve, stream.protocol.ref)
    commit = last.get("commit") or step.commit or head
    base = await asyncio.to_thread(_base, stream, last, head, commit)
    author = (step.runtime_state or {}).get("author")
    session = last.get("session", {})
    judge = await asyncio.to_thread(
        judge_for, stream, step, base=base, author=author, model=session.get("model")
    )
    judged = await judge_step_commit(
        stream.job, step, repository, judge, commit=commit, base=base, attempt_id=last.get("attempt_id")
    )
    recorded = session.get("simulated") or judged.verdict.simulated
    outcome, reason = judged.verdict.outcome, judged.verdict.reason
    if judged.verdict.passed and recorded and not stream.protocol.simulated:
        outcome, reason = Outcome.ERROR, RECORDED
    elif judged.verdict.passed and not await asyncio.to_thread(_keep, stream, head, commit):
        outcome = Outcome.FAILED
    done = Attempted(
        attempt_id=last.get("attempt_id", 0),
        kept=outcome is Outcome.PASSED,
        outcome=outcome,
        reason=reason,
        incumbent=base,
        commit=commit,
        verdict=judged.verdict,
        session=session,
    )
    return done, judge.prompt_versions


def _last(stream: Stream, step: ProtocolStep) -> Mapping[str, Any]:
    """The end of the last attempt at it; empty if there was none."""
    with stream.job.ledger.read() as tx:
        ended: list[Mapping[str, Any]] = stages_of_step(tx, step.step_id, ENDED)
    return ended[-1] if ended else {}


def _base(stream: Stream, last: Mapping[str, Any], head: str, commit: str) -> str:
    """The branch before the step: where it is now, or where it was when the commit was kept."""
    repository = stream.clone.repository
    if not repository.is_ancestor(commit, stream.protocol.ref):
        return head
    if last.get("commit") == commit and last.get("incumbent"):
        return str(last["incumbent"])
    [entry] = repository.log(commit, limit=1)
    if not entry.parents:
        raise ProtocolBlocked(
            "there is nothing to judge: the branch has no commit of its own", event="qa_blocked"
        )
    return entry.parents[0]


def _keep(stream: Stream, head: str, commit: str) -> bool:
    repository = stream.clone.repository
    if repository.is_ancestor(commit, stream.protocol.ref):
        return True
    if not repository.is_ancestor(head, commit):
        return False
    try:
        repository.advance(stream.protocol.ref, commit, expected=head)
    except (StateChanged, Conflict):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text for the author, and which version of the step's own file it was made from."""

    system: str
    text: str
    version: str


def make_prompt(stream: Stream, step: ProtocolStep, commit: str) -> Prompt:
    """Raises `ProtocolBlocked` when the step's prompt is not in the commit."""
    repository = stream.clone.repository
    own = read_prompt(repository, commit, step, stream.root)
    names = [each["name"] for each in (stream.project.facts or {}).get("checks") or []]
    rules = _RULES.format(root=stream.root, checks=", ".join(names) or "the gates of this repository")
    parts = [f"# Protocol {stream.protocol.name}", stream.protocol.description or ""]
    for file in ("plan.md", "context.md"):
        found = _read(repository, commit, f"{stream.root}/{file}")
        if found:
            parts.append(_quoted(file, found))
    parts.append(f"# Your step: {step.name}\n\n{decoded(own)}")
    feedback = (step.runtime_state or {}).get("feedback")
    if feedback:
        parts.append(
            f"# What was wrong with the last attempt\n\n{feedback}\n\nFix this. Keep what was right."
        )
    return Prompt(rules, "\n\n".join(part for part in parts if part), prompt_version(own))


def read_prompt(repository: Repository, commit: str, step: ProtocolStep, root: str) -> bytes:
    """The file that the step's spec names: in the protocol's folder, else in the repository."""
    reference = (step.spec or {}).get("prompt_ref") or f"{step.name}.md"
    for path in (str(PurePosixPath(root, reference)), reference):
        found = _read_bytes(repository, commit, path)
        if found is not None:
            return found
    raise ProtocolBlocked(
        f"the prompt {reference} of step {step.name} is not on the branch",
        event="spec_validation_error",
        hint=f"commit it under {root}/, or fix prompt_ref in the spec",
    )


def _quoted(name: str, text: str) -> str:
    """Foreign text between marks that it cannot hold itself."""
    mark = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return f"<<<{mark} {name}\n{text[:_LONGEST_FILE]}\n{mark}>>>"


def _read(repository: Repository, commit: str, path: str) -> str | None:
    found = _read_bytes(repository, commit, path)
    return None if found is None else decoded(found)


def _read_bytes(repository: Repository, commit: str, path: str) -> bytes | None:
    try:
        return repository.read_file(commit, path)
    except NotFound:
        return None
