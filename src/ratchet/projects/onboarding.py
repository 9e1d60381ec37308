"""Onboarding: from an address or a path to a project that is known well enough to work on.

Read from top to bottom it is what happens. Every stage ends in one transaction; a process that takes over after another
one died resumes with the first stage that has not ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse, RatchetError, RunStatus, StepStatus, Waiting
from ratchet.ledger import Transaction, change_run, change_step
from ratchet.ledger.projects import Project, add_facts, change_project, get_project
from ratchet.ledger.questions import find_clarification
from ratchet.ledger.runs import find_or_create_step, get_run
from ratchet.projects.address import CloneMissing, clone_place, remote_key
from ratchet.projects.assets import write_assets
from ratchet.projects.clarifications import SETUP_BLOCKED, ask, waits_for_answers
from ratchet.projects.clone import make_clone, place_of, stoppable
from ratchet.projects.discovery import discover_files, discover_project, read_facts
from ratchet.projects.local import GitSettings, global_identity, has_credentials, usable_origin
from ratchet.projects.registration import onboarding_questions
from ratchet.projects.secrets import secret_names
from ratchet.projects.setup import keep_found
from ratchet.projects.stages import (
    Blocked,
    Done,
    Note,
    do_stage,
    step_name,
    tell,
)
from ratchet.projects.transfer import origin_of, transfer_for
from ratchet.runtime import JobContext
from ratchet.workspaces import Identity, find_git
from ratchet.workspaces.repository import FoundRepository, find_repository


async def resolve(job: JobContext, project_id: int) -> Done:
    """Find the repository, or clone it, and record where it is."""
    project = await asyncio.to_thread(_project, job, project_id)
    path, cloned = await _brought_here(job, project)
    found = await asyncio.to_thread(find_repository, path, find_git())
    if found.files is None:
        raise Blocked(
            f"{path} is a bare repository, which has no files to look at",
            event="setup_blocked",
            hint="register the project by git_url, so that it is cloned",
        )
    origin, warnings = await asyncio.to_thread(_found_origin, project, found)
    ours = path == clone_place(job.runtime, project)

    def record(tx: Transaction) -> None:
        change_project(tx, project.id, local_path=str(path))
        if origin is not None and origin != project.git_url:
            change_project(tx, project.id, git_url=origin, remote=remote_key(origin))
        add_facts(tx, project.id, {"cloned": ours})

    where = Note("setup_local_path_recorded", f"the repository is at {path}", {"path": str(path)})
    cloning = (Note("setup_cloned", f"cloned to {path}", {"path": str(path)}),) if cloned else ()
    told = (*cloning, where, *warnings)
    return Done("warning" if warnings else "completed", told, {"path": str(path), "cloned": ours}, record)


async def discover(job: JobContext, project_id: int, tree: Path) -> Done:
    """Which stack it has, and which checks a change of it must pass."""
    project = await asyncio.to_thread(_project, job, project_id)
    may_ask = project.facts.get("engine_discovery", True)
    with job.write() as tx:
        tell(tx, job, project_id, Note("setup_discovery_started", "looking at the repository"))
    if may_ask:
        facts = await discover_project(job, project, tree)
    else:
        facts = await asyncio.to_thread(discover_files, tree, origin=project.git_url)
    found = facts.as_json()

    def record(tx: Transaction) -> None:
        settled = find_clarification(tx, project_id, "required_checks")
        answered = settled is not None and not settled.open
        # What a person has settled counts more than what was found.
        new = {key: value for key, value in found.items() if not (answered and key == "required_checks")}
        add_facts(tx, project_id, keep_found(get_project(tx, project_id).facts, new))
        if project.ci_provider is None and facts.ci_provider is not None:
            change_project(tx, project_id, ci_provider=facts.ci_provider)

    summary = {"stack": found["stack"], "checks": [check.name for check in facts.checks]}
    done = Note("setup_discovery_completed", f"found: {', '.join(facts.stack) or 'no known stack'}", summary)
    warnings = tuple(Note("setup_discovery_warning", note) for note in facts.notes)
    return Done("warning" if warnings else "completed", (*warnings, done), summary, record)


async def write_starters(job: JobContext, project_id: int, tree: Path) -> Done:
    """The CI files that the repository lacks, if they were asked for. A person commits them, or a protocol."""
    project = await asyncio.to_thread(_project, job, project_id)
    if not project.facts.get("ci_files"):
        return Done("skipped")
    facts = read_facts(project.facts)
    provider = project.ci_provider or facts.ci_provider
    written = await asyncio.to_thread(write_assets, tree, facts, provider=provider)
    data = {"created": list(written.created), "kept": list(written.kept)}
    told = f"wrote {len(written.created)} files, {len(written.kept)} were there"
    notes = [Note("setup_assets", told, data)]
    if written.refused:
        notes.append(Note("setup_warning", f"not written: {', '.join(written.refused)}"))
    if written.required_checks and not facts.required_checks:
        await asyncio.to_thread(_require, job, project_id, written.required_checks)
    return Done("completed", tuple(notes), data)


def _require(job: JobContext, project_id: int, checks: Sequence[str]) -> None:
    """The jobs of a CI file that was just written are what a change must pass."""
    with job.write() as tx:
        add_facts(tx, project_id, {"required_checks": list(checks)})


async def configure(job: JobContext, project_id: int, tree: Path) -> Done:
    """The origin of the clone, and who commits in it. Done again, it changes only what is to be different."""
    project = await asyncio.to_thread(_project, job, project_id)
    return await asyncio.to_thread(_configured, job, project, tree)


def _configured(job: JobContext, project: Project, tree: Path) -> Done:
    settings = GitSettings.of(tree)
    origin = origin_of(job.runtime, project)
    notes: list[Note] = []
    if origin is None:
        notes.append(Note("setup_warning", f"{tree} has no remote, so nothing is pushed"))
    else:
        was = settings.origin
        same = was is not None and remote_key(was) == remote_key(origin)
        # The origin of a person's repository is theirs, unless it is the same one in another spelling.
        if was is None or same or project.facts.get("cloned"):
            settings.set_origin(origin)
        notes.append(Note("setup_git_remote", f"the origin is {origin}", {"origin": origin}))
    configured = job.runtime.settings.projects
    answered = _answer(job, project.id, "git_identity") or {}
    settings.set_identity(
        name=answered.get("name", configured.git_user), email=answered.get("email", configured.git_email)
    )
    identity = settings.identity or _global_identity()
    if identity is None:
        told = (
            "commits are by Ratchet: neither the repository's configuration nor git's global one names somebody; "
            f"`ratchet project answer {project.id} git_identity "
            '\'{"name": "Ada", "email": "ada@example.org"}\'` or projects.git_user and git_email name one'
        )
        notes.append(Note("setup_git_identity", told))
    else:
        notes.append(Note("setup_git_identity", f"commits are by {identity['name']}", identity))

    def record(tx: Transaction) -> None:
        if identity is not None:
            add_facts(tx, project.id, {"identity": identity})

    return Done("warning" if origin is None else "completed", tuple(notes), {}, record)


def _global_identity() -> dict[str, str] | None:
    """It is not written into the repository. One that no commit can hold, or that cannot be read, names nobody."""
    try:
        found = global_identity(os.environ)
        if found is not None:
            Identity(**found)
    except RatchetError:
        return None
    return found


def _project(job: JobContext, project_id: int) -> Project:
    with job.ledger.read() as tx:
        return get_project(tx, project_id)


def _answer(job: JobContext, project_id: int, key: str) -> Any:
    with job.ledger.read() as tx:
        asked = find_clarification(tx, project_id, key)
    return None if asked is None else asked.answer


async def _brought_here(job: JobContext, project: Project) -> tuple[Path, bool]:
    """Where the repository is, and whether it was cloned just now."""
    runtime = job.runtime
    transfer = await asyncio.to_thread(transfer_for, runtime, project)
    try:
        return await stoppable(transfer, lambda: make_clone(runtime, project, transfer))
    except CloneMissing as missing:
        tried = runtime.settings.projects.auto_clone and place_of(runtime, project) == clone_place(
            runtime, project
        )
        event = "setup_clone_failed" if tried else "setup_pending_clone"
        raise Blocked(str(missing), event=event, hint=missing.hint) from missing


def _found_origin(project: Project, found: FoundRepository) -> tuple[str | None, tuple[Note, ...]]:
    """The address that the project is to have, and what is odd about the repository."""
    assert found.files is not None
    configured = GitSettings(found.files, found.git).origin
    odd: list[str] = []
    origin = project.git_url
    if configured is not None:
        if has_credentials(configured):
            odd.append(
                "the origin has a name or a password in it, which is not used: give the project a git_token"
            )
        try:
            own = usable_origin(configured, found.files)
            if origin is None:
                origin = own
            elif remote_key(own) != remote_key(origin):
                odd.append(f"the repository's origin is {own}; the project's address {origin} is used")
        except Misuse as error:
            odd.append(f"the origin of the repository is not used: {error}")
    base = project.base_branch
    refs = (f"refs/heads/{base}", f"refs/remotes/origin/{base}")
    if not any(found.git.asks("show-ref", "--verify", "--quiet", ref) for ref in refs):
        odd.append(f"there is no branch {base!r}: push it, or give the project another base branch")
    return origin, tuple(Note("setup_warning", text) for text in odd)


async def set_up(job: JobContext) -> object:
    """Carry an onboarding from wherever it stands. Raises `Waiting` when it is blocked until somebody acts."""
    project_id = await asyncio.to_thread(_enter, job)
    if project_id is None:
        return {"run": job.run_id, "status": "stopped"}
    resolved = await do_stage(job, project_id, "resolve", lambda: resolve(job, project_id))
    tree = Path(resolved["path"])
    await do_stage(job, project_id, "discovery", lambda: discover(job, project_id, tree))
    await do_stage(job, project_id, "assets", lambda: write_starters(job, project_id, tree))
    await do_stage(job, project_id, "git", lambda: configure(job, project_id, tree))
    await asyncio.to_thread(_clarify, job, project_id)
    # Answers may have settled what the stage of git could only guess.
    settled = await configure(job, project_id, tree)
    await asyncio.to_thread(_complete, job, project_id, settled)
    return {"run": job.run_id, "status": "completed"}


def _enter(job: JobContext) -> int | None:
    """The project that is set up; nothing when its run is paused or blocked or has ended."""
    with job.write() as tx:
        run = get_run(tx, job.run_id)
        if run.status.stands:
            return None
        assert run.project_id is not None
        if run.status is RunStatus.PENDING:
            change_run(tx, run.id, RunStatus.RUNNING, expected=(RunStatus.PENDING,))
            tell(tx, job, run.project_id, Note("setup_started", "onboarding has begun"))
        return run.project_id


def _clarify(job: JobContext, project_id: int) -> None:
    """Ask what only people know. Raises `Waiting` when that must be answered first."""
    with job.write() as tx:
        step, _ = find_or_create_step(tx, job.run_id, step_name("clarifications"), {})
        if step.status is StepStatus.PENDING:
            _ask(tx, job, project_id)
        if step.status is not StepStatus.RUNNING:
            change_step(tx, step.id, StepStatus.RUNNING, expected=(step.status,))
        blockers = waits_for_answers(tx, project_id, "onboarding", job.run_id)
        if blockers:
            keys = [each.key for each in blockers]
            reason = f"waits for answers to: {', '.join(keys)}"
            change_step(tx, step.id, StepStatus.BLOCKED, expected=(StepStatus.RUNNING,), reason=reason)
            change_run(tx, job.run_id, RunStatus.BLOCKED, reason=reason)
            tell(tx, job, project_id, Note(SETUP_BLOCKED, reason, {"stage": "clarifications", "keys": keys}))
    if blockers:
        raise Waiting(reason)


def _ask(tx: Transaction, job: JobContext, project_id: int) -> None:
    settings = job.runtime.settings
    blocking = settings.projects.require_clarifications
    questions = onboarding_questions(get_project(tx, project_id), settings, secret_names(tx, project_id))
    for each in questions:
        ask(
            tx,
            project_id,
            each.key,
            each.question,
            options=each.options,
            recommended=each.recommended,
            blocking=blocking,
        )
    asked = [{"key": each.key, "recommended": each.recommended} for each in questions]
    data = {"blocking": blocking, "questions": asked}
    tell(tx, job, project_id, Note("setup_clarifications", f"{len(questions)} questions", data))


def _complete(job: JobContext, project_id: int, settled: Done) -> None:
    with job.write() as tx:
        if settled.record is not None:
            settled.record(tx)
        step, _ = find_or_create_step(tx, job.run_id, step_name("clarifications"), {})
        if step.status is StepStatus.RUNNING:
            change_step(tx, step.id, StepStatus.COMPLETED, result={"state": "completed"})
        change_run(tx, job.run_id, RunStatus.COMPLETED, expected=(RunStatus.RUNNING,), reason="set up")
        tell(tx, job, project_id, Note("setup_completed", "the project is set up"))
