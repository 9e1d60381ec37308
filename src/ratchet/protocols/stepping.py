"""One step: make an attempt, or judge once more what there is, then say what becomes of the step."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ratchet.engines import Engine, Request, Session
from ratchet.kernel import BudgetExceeded, LedgerError, StateChanged, StepStatus, Superseded
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.ledger.runs import unended_attempt
from ratchet.ledger.stages import stages_of_step
from ratchet.loop import Attempted, GitTrunk, Plan, attempt
from ratchet.projects.clarifying import open_blockers
from ratchet.projects.environments import Environment, stays_inside
from ratchet.protocols.authorship import author_of
from ratchet.protocols.baseline import environment_of
from ratchet.protocols.budgeting import require_room
from ratchet.protocols.choosing import choose
from ratchet.protocols.judging import judge_again, judge_for
from ratchet.protocols.outputs import LOG, write_outputs
from ratchet.protocols.prompting import make_prompt
from ratchet.protocols.publishing import publish
from ratchet.protocols.rebasing import NAME as REBASE
from ratchet.protocols.rebasing import RebaseEngine, without
from ratchet.protocols.settling import refuse, settle
from ratchet.protocols.stream import Blocked, Stream
from ratchet.runtime.attempts import ENDED
from ratchet.workspaces import Kind, PatchRefused, Workspace

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
    except Blocked as blocked:
        if blocked.event.startswith("push"):
            # The step has passed and is kept; only the world does not know it yet.
            raise
        await asyncio.to_thread(refuse, stream, step, blocked.told, event=blocked.event)
    except BudgetExceeded as error:
        await asyncio.to_thread(refuse, stream, step, f"{error} ({error.hint})", event="budget_exceeded")
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
    except Exception:  # noqa: BLE001 - it is on record as the end of the attempt, and comes back as that
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
    # Somebody else may apply the change; it stays its author's.
    author = state.get("author", engine.name) if engine.name == REBASE else engine.name
    judge = judge_for(stream, step, base=head, author=author)
    trunk = GitTrunk(
        repository=repository,
        base=head,
        ref=stream.protocol.ref,
        message=commit_message(stream, step),
        author=author_of(stream.project),
        kind=None if engine.name == REBASE else Kind.WORKTREE,
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
        # Kept or not, what becomes of the step is said with its policies, in one transaction: see `settling`.
        kept=StepStatus.NEEDS_QA,
        discarded=StepStatus.NEEDS_QA,
    )
    return plan, {"exec": prompt.version, **judge.prompt_versions}


def _tell_started(
    stream: Stream, step: ProtocolStep, plan: Plan, versions: Mapping[str, str], nth: int
) -> None:
    """Not of an attempt that was begun before and is only gone on with."""
    with stream.job.write() as tx:
        ended = len(stages_of_step(tx, step.step_id, ENDED))
        if ended >= nth or unended_attempt(tx, step.step_id) is not None:
            return
        engine, model = plan.engine.name, plan.request.model
        told = f"{step.name} is carried out by {engine}"
        data = {"engine_id": engine, "model": model, "prompt_versions": dict(versions)}
        stream.event(tx, "step_started", told, step_id=step.step_id, data=data)


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
    """What an attempt changed. Its line of the log is written anew, instead of being in the way of the others."""
    patch = stream.clone.repository.diff(made["base"], made["commit"])
    return without(patch, f"{stream.root}/{LOG}")


def _require_answers(stream: Stream, step: ProtocolStep) -> None:
    with stream.job.ledger.read() as tx:
        waiting = [
            each
            for phase in ("execution", "qa")
            for each in open_blockers(
                tx, stream.project.id, phase, run_id=stream.protocol.run_id, step_id=step.step_id
            )
        ]
    if waiting:
        keys = ", ".join(each.key for each in waiting)
        raise Blocked(
            f"{step.name} waits for an answer to {keys}",
            event="execution_blocked_clarifications",
            hint=f"ratchet project answer {stream.project.id} {waiting[0].key} ANSWER",
        )
