"""A protocol in the hands of its worker: its project, its clone, its branch, the worktree that people look at, and its
pull request.

The branch is pushed, a draft is opened, and what people do with it is recorded. Both may be repeated: a push of what is
there already and a pull request that exists change nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.engines.engine import Engine
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.forges import (
    Forge,
    ForgeError,
    ForgeEvent,
    PullRequest,
    PullRequestState,
    check_on_forge,
    open_forge,
)
from ratchet.kernel import NotFound, RatchetError, RunStatus, decoded, with_hint
from ratchet.ledger import EventFilter, Transaction
from ratchet.ledger.events import latest
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import (
    Protocol,
    change_protocol,
    find_protocol,
    get_protocol,
    list_protocol_steps,
)
from ratchet.placement import Placement
from ratchet.programs import TookTooLong
from ratchet.projects.address import PushRefused, RemoteFailed, worktrees_of
from ratchet.projects.clone import Clone
from ratchet.projects.secrets import FORGE_TOKEN, read_secret
from ratchet.runtime import JobContext, Runtime
from ratchet.runtime.runs import end_run, halt_run
from ratchet.workspaces import Identity, Repository
from ratchet.workspaces.git import run_git
from ratchet.workspaces.packs import fetch_commits, record_commit


class ProtocolBlocked(RatchetError):
    """The protocol cannot continue until a person does what the message says."""

    http_status = 409

    def __init__(self, message: str, *, event: str = "blocked", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.event = event


@dataclass(frozen=True, slots=True)
class Stream:
    """One protocol, its project and its clone, for one delivery of its job. The rows are as they were at its start."""

    job: JobContext
    protocol: Protocol
    project: Project
    clone: Clone
    placement: Placement

    @property
    def surroundings(self) -> EngineContext:
        return EngineContext(self.job.runtime.settings, self.job.runtime.home, os.environ)

    @property
    def root(self) -> str:
        """The folder of the protocol's own files on its branch."""
        return f".protocols/{self.protocol.name}"

    def open_engine(self, name: str | None) -> Engine:
        """Raises `ProtocolBlocked` when there is no such engine."""
        try:
            return open_engine(name, self.surroundings)
        except RatchetError as error:
            raise ProtocolBlocked(str(error), event="engine_missing", hint=error.hint) from error

    def event(
        self,
        tx: Transaction,
        type: str,
        message: str,
        *,
        step_id: int | None = None,
        attempt_id: int | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        tx.event(
            type,
            run_id=self.protocol.run_id,
            project_id=self.protocol.project_id,
            step_id=step_id,
            attempt_id=attempt_id,
            message=message,
            data={"spec_hash": self.protocol.spec_hash, **(data or {})},
        )


def identity_of(project: Project) -> Identity | None:
    """The identity that was set up with the project; none means Ratchet itself."""
    return read_author(project.facts.get("identity"))


def read_author(data: Any) -> Identity | None:
    """Raises `Misuse` for a name or an address that cannot stand in a commit."""
    if not isinstance(data, Mapping) or not data.get("name") or not data.get("email"):
        return None
    return Identity(str(data["name"]), str(data["email"]))


def write_author(author: Identity | None) -> dict[str, str] | None:
    return None if author is None else {"name": author.name, "email": author.email}


_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")


def show_worktree(stream: Stream, commit: str) -> None:
    """Bring it to `commit`; when that cannot be done, an event says why, and the work continues."""
    path = worktree_path(stream)
    if not path.exists():
        _remove_old(stream)
    complaint = _update(stream.clone.path, path, commit)
    with stream.job.write() as tx:
        if complaint is not None:
            stream.event(tx, "worktree_warning", complaint, data={"path": str(path)})
        elif get_protocol(tx, stream.protocol.run_id).worktree_path != str(path):
            change_protocol(tx, stream.protocol.run_id, worktree_path=str(path))


def worktree_path(stream: Stream) -> Path:
    return worktrees_of(stream.job.runtime, stream.project.id) / stream.protocol.name


def _remove_old(stream: Stream) -> None:
    """Keep only as many worktrees of ended protocols as the settings say, the newest, and those with changes."""
    place = worktrees_of(stream.job.runtime, stream.project.id)
    names = sorted(each.name for each in place.iterdir()) if place.exists() else []
    with stream.job.ledger.read() as tx:
        found = [find_protocol(tx, stream.project.id, each) for each in names]
    ended = [each for each in found if each is not None and each.ended_at is not None]
    ended.sort(key=lambda each: (each.ended_at or 0, each.run_id), reverse=True)
    for each in ended[stream.job.runtime.settings.protocols.worktrees :]:
        if _remove(stream.clone.path, place / each.name, each):
            with stream.job.write() as tx:
                change_protocol(tx, each.run_id, worktree_path=None)


def _remove(clone: Path, path: Path, protocol: Protocol) -> bool:
    """Whether it is gone now. Git keeps one with changes or a lock; commits that are nowhere else are kept here."""
    if _git(path, "merge-base", "--is-ancestor", "HEAD", protocol.ref) is not None:
        return False
    return _git(clone, "worktree", "remove", str(path)) is None


def _update(clone: Path, path: Path, commit: str) -> str | None:
    if not path.exists():
        # A directory that was deleted is still on git's list.
        _git(clone, "worktree", "prune")
        return _git(clone, "worktree", "add", "--detach", "--force", str(path), commit)
    changed = _git(path, "diff", "--quiet", "HEAD")
    if changed is not None:
        return f"the worktree {path} has changes in it; it stays as it is"
    return _git(path, "checkout", "--quiet", "--detach", commit)


def _git(directory: Path, *words: str) -> str | None:
    """Run git; what it complains about, if it does."""
    try:
        done = run_git(directory, *_QUIET, *words)
    except (OSError, TookTooLong) as error:
        return f"git {words[0]} could not be run: {error}"
    if done.returncode == 0:
        return None
    return decoded(done.stderr).strip()[:1000] or f"git {words[0]} ended with {done.returncode}"


def pack_branch(stream: Stream, commit: str) -> bytes | None:
    """All of a branch beyond its base, for machines that share the ledger and the store alone, if there may be any.

    What attempts made is recorded already, but a person may have put more on the branch.
    """
    if not stream.job.ledger.artifacts.travels:
        return None
    base = stream.protocol.base_commit
    return stream.clone.repository.pack(commit, known=[] if base is None else [base])


def record_branch(tx: Transaction, stream: Stream, commit: str, pack: bytes | None) -> None:
    if pack is not None:
        store, protocol = stream.job.ledger.artifacts, stream.protocol
        record_commit(tx, store, protocol.run_id, protocol.ref, commit, pack)


def bring_commits(stream: Stream) -> None:
    """Have in this clone what was made on other machines. Their commits build upon the base, which the remote has."""
    clone, base = stream.clone, stream.protocol.base_commit
    with contextlib.suppress(NotFound, RemoteFailed):
        if base is not None and not _has(clone.repository, base):
            clone.fetch(stream.protocol.base_branch)
    fetch_commits(stream.job.ledger, stream.protocol.run_id, clone.repository)


def _has(repository: Repository, commit: str) -> bool:
    try:
        return repository.resolve(commit) == commit
    except NotFound:
        return False


def head_of(stream: Stream) -> str:
    """The newest commit that was kept. Raises `ProtocolBlocked` when the branch is gone and cannot be brought back."""
    head = stream.clone.repository.ref(stream.protocol.ref) or _restored(stream)
    if head is None:
        raise ProtocolBlocked(
            f"the branch {stream.protocol.name} is gone",
            event="branch_missing",
            hint="restore it, for instance from the origin, and resume",
        )
    return head


def _restored(stream: Stream) -> str | None:
    """The branch as it was pushed last, in a clone that was made again; nothing if the origin has it otherwise."""
    with stream.job.ledger.read() as tx:
        pushed = get_protocol(tx, stream.protocol.run_id).pushed
    if pushed is None or stream.clone.origin is None:
        return None
    with contextlib.suppress(NotFound):
        if stream.clone.fetch(stream.protocol.name) == pushed:
            stream.clone.repository.advance(stream.protocol.ref, pushed, expected=None)
            with stream.job.write() as tx:
                stream.event(tx, "branch_restored", f"{pushed[:12]} was brought back from the origin")
            return pushed
    return None


def forge_of(runtime: Runtime, project: Project) -> Forge:
    """May run a program, so it is not for the event loop. Raises `ForgeError` where there is none that can be used."""
    check_on_forge(project.remote)
    with runtime.ledger.read() as tx:
        token = read_secret(tx, runtime, project.id, FORGE_TOKEN)
    return open_forge(runtime.settings, project.ci_provider, project.remote, token)


_NO_REMOTE = (
    "the repository has no remote (add one with `git remote add origin URL` and set the project up again)"
)


async def publish(stream: Stream, commit: str, *, always: bool = False) -> bool:
    """Push the commit and see that there is a pull request. Whether the remote has the commit now.

    `always` is for a person who asks for it, whatever the settings say: then the text of an open one is
    written again, too. Raises `ProtocolBlocked` when the remote refuses the push. A forge that cannot be reached is
    reported as an event: the work continues without a pull request.
    """
    settings = stream.job.runtime.settings.protocols
    if stream.clone.origin is None or not (settings.push or always):
        if always:
            _skip(stream, _NO_REMOTE, again=True)
        return False
    if stream.protocol.pushed != commit:
        await _push(stream, commit)
    if (settings.pull_requests and _policy(stream) != "none") or always:
        await _see_to_pull_request(stream, again=always)
    return True


async def finish_pull_request(stream: Stream) -> None:
    """The last step has passed: the pull request is a draft no longer, and its title does not call it one."""
    known = _known(stream)
    if known is None or not known.get("draft"):
        return
    forge = await asyncio.to_thread(_forge, stream)
    if forge is None:
        return
    try:
        ready = await forge.mark_ready(known["number"])
        if ready.title == _title(stream, draft=True):
            # People gave it no other title.
            ready = await forge.update_pull_request(ready.number, title=_title(stream, draft=False))
    except ForgeError as error:
        _tell(stream, "open_pr_failed", f"the pull request could not be made ready: {with_hint(error)}")
        return
    _record(stream, ready, "pull_request_ready", f"pull request {ready.number} is ready for people")


async def _push(stream: Stream, commit: str) -> None:
    try:
        await asyncio.to_thread(stream.clone.push, commit, stream.protocol.name)
    except PushRefused as refused:
        _tell(stream, "push_refused", with_hint(refused))
        raise ProtocolBlocked(str(refused), event="push_refused", hint=refused.hint) from refused
    except RatchetError as error:
        raise ProtocolBlocked(
            f"the branch cannot be pushed: {error}", event="push_failed", hint=error.hint
        ) from error
    with stream.job.write() as tx:
        if get_protocol(tx, stream.protocol.run_id).pushed != commit:
            change_protocol(tx, stream.protocol.run_id, pushed=commit)
            stream.event(tx, "pushed", f"{commit[:12]} is at the origin", data={"commit": commit})


async def _see_to_pull_request(stream: Stream, *, again: bool) -> None:
    known = _known(stream)
    if known is not None and not again:
        return
    forge = await asyncio.to_thread(_forge, stream, again=again)
    if forge is None:
        return
    draft = _policy(stream) != "ready"
    try:
        if known is not None:
            there = await forge.update_pull_request(known["number"], body=_body(stream))
        else:
            there = await forge.open_pull_request(
                branch=stream.protocol.name,
                base=stream.protocol.base_branch,
                title=_title(stream, draft=draft),
                body=_body(stream),
                draft=draft,
            )
    except ForgeError as error:
        _tell(stream, "open_pr_failed", with_hint(error))
        return
    event = "open_pr" if known is None else "pull_request_updated"
    _record(stream, there, event, f"pull request {there.number} ({there.state}): {there.url}")


def _policy(stream: Stream) -> str:
    """What was settled about pull requests when the project was set up: `draft`, `ready` or `none`."""
    return str(stream.project.facts.get("pr_policy") or "draft")


def _forge(stream: Stream, *, again: bool = False) -> Forge | None:
    """The project's forge; nothing, with an event that says why, where there is none that can be used."""
    try:
        return forge_of(stream.job.runtime, stream.project)
    except ForgeError as error:
        _skip(stream, with_hint(error), again=again)
        return None


def _skip(stream: Stream, why: str, *, again: bool) -> None:
    """Say why there is no pull request: once and not at every push, but each time when a person asks for it."""
    with stream.job.write() as tx:
        where = EventFilter(run_id=stream.protocol.run_id, type="open_pr_skipped")
        if again or [each.message for each in latest(tx.connection, where=where, limit=1)] != [why]:
            stream.event(tx, "open_pr_skipped", why)


def _known(stream: Stream) -> dict[str, Any] | None:
    with stream.job.ledger.read() as tx:
        found = get_protocol(tx, stream.protocol.run_id).pull_request
    return found if isinstance(found, dict) and "number" in found else None


def _record(stream: Stream, opened: PullRequest, event: str, message: str) -> None:
    with stream.job.write() as tx:
        change_protocol(tx, stream.protocol.run_id, pull_request=opened.as_json())
        stream.event(tx, event, message, data=opened.as_json())


def _tell(stream: Stream, event: str, message: str) -> None:
    with stream.job.write() as tx:
        stream.event(tx, event, message)


def _title(stream: Stream, *, draft: bool) -> str:
    number, _, slug = stream.protocol.name.partition("-")
    plain = f"{number} - {slug}" if slug else stream.protocol.name
    return f"WIP: {plain}" if draft else plain


def _body(stream: Stream) -> str:
    simulated = (
        "This is a simulation: recorded sessions count in it.\n\n" if stream.protocol.simulated else ""
    )
    with stream.job.ledger.read() as tx:
        steps = [
            f"{each.step_index + 1}. {each.name}" for each in list_protocol_steps(tx, stream.protocol.run_id)
        ]
    listed = "".join(f"{line}\n" for line in steps)
    return (
        f"{simulated}{stream.protocol.description or stream.protocol.name}\n\n{listed}\n"
        f"Protocol {stream.protocol.run_id}; its plan is in `{stream.root}/plan.md`. Each step is a commit that passed"
        " its checks and its review."
    )


_R = RunStatus
# The way to completed, from wherever a protocol stands.
_WAYS = {
    _R.PENDING: (_R.RUNNING, _R.COMPLETED),
    _R.PLANNING: (_R.PLANNED, _R.RUNNING, _R.COMPLETED),
    _R.PLANNED: (_R.RUNNING, _R.COMPLETED),
    _R.RUNNING: (_R.COMPLETED,),
    _R.PAUSED: (_R.RUNNING, _R.COMPLETED),
    _R.BLOCKED: (_R.RUNNING, _R.COMPLETED),
}


def settle_pull_request(tx: Transaction, runtime: Runtime, protocol: Protocol, event: ForgeEvent) -> str:
    """Do what the pull request of a live protocol asks for; what became of it, in a few words."""
    known: dict[str, Any] = protocol.pull_request if isinstance(protocol.pull_request, dict) else {}
    number = known.get("number")
    if number is not None and event.pull_request is not None and number != event.pull_request:
        return f"the protocol's pull request is {number}"
    _remember(tx, protocol, known, event)
    word = "merge request" if event.provider == "gitlab" else "pull request"
    named = f"{word} {event.pull_request}" if event.pull_request else f"the {word}"
    if event.merged:
        _report_merge(
            tx,
            protocol,
            event,
            "mr_merged" if event.provider == "gitlab" else "pr_merged",
            f"{named} was merged",
        )
        if protocol.rests_on_recording:
            reason = f"{named} was merged, but the protocol rests on a recording, so it cannot be completed"
            halt_run(tx, runtime, protocol.run_id, RunStatus.BLOCKED, reason=reason)
            return "blocked"
        end_run(tx, runtime, protocol.run_id, *_WAYS[protocol.status], reason=f"{named} was merged")
        return "completed"
    if event.closed:
        reason = f"{named} was closed without being merged; open it again and resume, or cancel the protocol"
        halt_run(tx, runtime, protocol.run_id, RunStatus.BLOCKED, reason=reason)
        return "blocked"
    return "recorded"


def _remember(tx: Transaction, protocol: Protocol, known: dict[str, Any], event: ForgeEvent) -> None:
    closed = PullRequestState.CLOSED if event.closed else PullRequestState.OPEN
    reported = {
        "provider": event.provider,
        "number": event.pull_request,
        "url": event.url,
        "state": str(PullRequestState.MERGED if event.merged else closed),
        "draft": event.draft,
    }
    kept = {name: value for name, value in reported.items() if value is not None}
    if kept != {name: known.get(name) for name in kept}:
        change_protocol(tx, protocol.run_id, pull_request={**known, **kept})


def _report_merge(tx: Transaction, protocol: Protocol, event: ForgeEvent, type: str, message: str) -> None:
    tx.event(
        type,
        run_id=protocol.run_id,
        project_id=protocol.project_id,
        message=message,
        data={"spec_hash": protocol.spec_hash, "number": event.pull_request, "url": event.url},
    )
