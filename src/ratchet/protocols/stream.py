"""A protocol in the hands of its worker: its project, its clone, its branch, and the worktree that people look at."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.engines.engine import Engine
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.kernel import NotFound, RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol, change_protocol, find_protocol, get_protocol
from ratchet.projects.address import RemoteFailed, worktrees_of
from ratchet.projects.clone import Clone
from ratchet.runtime import JobContext
from ratchet.workspaces import Identity, Repository
from ratchet.workspaces.git import find_git
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


_SECONDS = 120.0
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
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
    try:
        done = subprocess.run(
            [find_git(), *_QUIET, *words],
            cwd=directory,
            env={**environment, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"git {words[0]} could not be run: {error}"
    if done.returncode == 0:
        return None
    return (
        done.stderr.decode("utf-8", "replace").strip()[:1000]
        or f"git {words[0]} ended with {done.returncode}"
    )


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
