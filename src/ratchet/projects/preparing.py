"""What the stages of an onboarding do: find the repository, look at it, give it what it lacks, and configure it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse, RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.clarifications import find_clarification
from ratchet.ledger.projects import Project, add_facts, change_project, get_project
from ratchet.projects.assets import write_assets
from ratchet.projects.clone import make_clone, place_of, stoppable
from ratchet.projects.discovery import discover_files, discover_project, read_facts
from ratchet.projects.errors import CloneMissing
from ratchet.projects.git_settings import GitSettings, global_identity, has_credentials, usable_origin
from ratchet.projects.origin import origin_of, transfer_for
from ratchet.projects.places import clone_place
from ratchet.projects.remote import remote_key
from ratchet.projects.settled import keep_found
from ratchet.projects.stages import Blocked, Done, Note, tell
from ratchet.runtime import JobContext
from ratchet.workspaces import Identity, find_git
from ratchet.workspaces.discovery import Found, find_repository


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
            f"`ratchet project answer {project.id} git_identity` or projects.git_user and git_email name somebody"
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


def _found_origin(project: Project, found: Found) -> tuple[str | None, tuple[Note, ...]]:
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
