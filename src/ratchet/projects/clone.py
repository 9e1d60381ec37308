"""The clone of a project on this machine, what goes between it and the remote, and the branches there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from ratchet.config.redaction import hide_known
from ratchet.files import sync_file_system
from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError, StateChanged, decoded
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import find_protocol
from ratchet.projects.address import (
    CloneMissing,
    PushRefused,
    Unconfirmed,
    clone_place,
    worktrees_of,
)
from ratchet.projects.transfer import Transfer, origin_of, transfer_for
from ratchet.runtime import Runtime
from ratchet.workspaces import Repository, find_git
from ratchet.workspaces.git import check_name
from ratchet.workspaces.repository import find_repository


def clone_into(transfer: Transfer, place: Path) -> bool:
    """Clone to `place`; whether this call did. It gets its name when it is finished, so what is there is a clone.

    Of two that clone at once, one gets the name, and the other takes what is there.
    """
    if place.exists():
        return False
    with transfer.claimed() as corner:
        made = transfer.clone(corner, into="clone")
        sync_file_system(made)
        try:
            made.rename(place)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
    return True


_T = TypeVar("_T")
_TRIES = 5
# How long another push may hold the lock of a branch: longer than one that was stopped has to end.
_LOCK_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
_LOCKED = "if nothing else pushes to it, delete the lock file that is named, then resume"


@dataclass(frozen=True, slots=True)
class Clone:
    """`origin` is what the ledger says it is, whatever the clone's configuration says now; `None` without a remote.

    Its calls may take as long as `projects.remote_seconds`; `close`, from any thread, ends them.
    """

    path: Path
    repository: Repository
    origin: str | None
    transfer: Transfer | None

    def fetch(self, branch: str) -> str:
        """The commit that a branch of the remote is at now, brought here. Without a remote it is the local branch.

        Raises `NotFound` without such a branch, and `RemoteFailed`.
        """
        check_branch(branch)
        if self.transfer is None:
            return self._local(branch)
        tracking = f"refs/remotes/origin/{branch}"
        there = self.transfer.branches(branch).get(branch)
        if there is None:
            raise NotFound("branch", f"{branch!r} at {self.origin}")
        if self.repository.ref(tracking) == there:
            return there
        commit = self.transfer.fetch(find_repository(self.path, find_git()), branch)
        self._track(tracking, commit)
        return commit

    def push(self, commit: str, branch: str) -> None:
        """Make a branch of the remote be at exactly this commit; fine if it is. Never by force.

        Raises `PushRefused` when the remote has something else there or will not take it, and `RemoteFailed`.
        """
        check_branch(branch)
        transfer = self._transfer()
        commit = self.repository.resolve(commit)
        there = transfer.branches(branch).get(branch)
        if there == commit:
            return
        if there is not None and not self._contains(commit, there):
            raise PushRefused(
                f"{branch} at {self.origin} is at {there[:12]}, which is no part of {commit[:12]}",
                hint="someone else pushed to it: merge that branch or delete it, then try again",
            )
        for pause in (*_LOCK_PAUSES, None):
            ended = transfer.push(find_repository(self.path, find_git()), f"{commit}:refs/heads/{branch}")
            # What counts is where the remote is: an answer may be lost, and another process may have been first.
            if not ended.code or transfer.branches(branch).get(branch) == commit:
                break
            locked = "cannot lock ref" in ended.complaint and "File exists" in ended.complaint
            if locked and pause is not None:
                transfer.processes.pause(pause)
                continue
            failed = transfer.failure(ended, "push")
            raise PushRefused(
                f"{self.origin} did not take {branch}: {_refusal(ended.output) or failed}{_words(ended.complaint)}",
                hint=_LOCKED if locked else failed.hint,
            )
        self._track(f"refs/remotes/origin/{branch}", commit)

    def remote_branches(self) -> list[str]:
        """The branches of the remote by name; without a remote, the local ones."""
        if self.transfer is not None:
            return sorted(filter(is_branch, self.transfer.branches()))
        names = (ref.removeprefix("refs/heads/") for ref in self.repository.refs("refs/heads/"))
        return sorted(filter(is_branch, names))

    def delete_remote_branch(self, branch: str) -> None:
        """Raises `NotFound` when the remote has no such branch, `PushRefused` when it keeps it."""
        check_branch(branch)
        transfer = self._transfer()
        if branch not in transfer.branches(branch):
            raise NotFound("branch", f"{branch!r} at {self.origin}")
        ended = transfer.push(find_repository(self.path, find_git()), f":refs/heads/{branch}")
        if ended.code and branch in transfer.branches(branch):
            failed = transfer.failure(ended, "push")
            raise PushRefused(
                f"{self.origin} did not delete {branch}: {_refusal(ended.output) or failed}", hint=failed.hint
            )
        tracking = f"refs/remotes/origin/{branch}"
        known = self.repository.ref(tracking)
        if known is not None:
            self.repository.restore({tracking: (None, known)})

    def close(self) -> None:
        if self.transfer is not None:
            self.transfer.stop()
        self.repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _transfer(self) -> Transfer:
        if self.transfer is None:
            raise PushRefused(
                f"{self.path} has no remote",
                hint="add one with `git remote add origin URL` and set the project up again, "
                "or set protocols.push to false",
            )
        return self.transfer

    def _local(self, branch: str) -> str:
        commit = self.repository.ref(f"refs/heads/{branch}")
        if commit is None:
            raise NotFound("branch", f"{branch!r} in {self.path}")
        return commit

    def _contains(self, commit: str, ancestor: str) -> bool:
        try:
            return self.repository.is_ancestor(ancestor, commit)
        except NotFound:  # it was never here, so nothing here rests on it
            return False

    def _track(self, ref: str, commit: str) -> None:
        """Note where the remote is, as `git fetch` does. A person may be fetching at the same time."""
        for _ in range(_TRIES):
            known = self.repository.ref(ref)
            if known == commit:
                return
            with contextlib.suppress(StateChanged):
                self.repository.advance(ref, commit, expected=known)
                return
        raise Conflict(f"{ref} in {self.path} keeps changing", hint="try again in a moment")


def open_clone(runtime: Runtime, project: Project, *, make: bool = True) -> Clone:
    """The clone of a project, made now if `projects.auto_clone` allows it. May take as long as a clone does.

    Raises `CloneMissing` when there is none here and it may not or cannot be made.
    """
    transfer = transfer_for(runtime, project)
    return _opened(runtime, project, transfer, make=make)


@contextlib.asynccontextmanager
async def opened_clone(runtime: Runtime, project: Project, *, make: bool = True) -> AsyncIterator[Clone]:
    """`open_clone` for a handler: when that is cancelled, git is ended with it, also in the middle of cloning."""
    transfer = await asyncio.to_thread(transfer_for, runtime, project)
    clone = await stoppable(transfer, lambda: _opened(runtime, project, transfer, make=make))
    try:
        yield clone
    finally:
        await asyncio.shield(asyncio.to_thread(clone.close))


async def stoppable(transfer: Transfer | None, work: Callable[[], _T]) -> _T:
    """Do `work` in a thread; when this is cancelled, end the git that it waits for and wait until it has returned."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if transfer is not None:
            transfer.stop()
        with contextlib.suppress(Exception):
            made = await task
            if isinstance(made, Clone):
                made.close()
        raise


def place_of(runtime: Runtime, project: Project) -> Path:
    """Where the project's repository is on this machine, or is to be cloned to. Raises `CloneMissing`."""
    given = None if project.local_path is None else Path(project.local_path)
    if given is not None and (exists(given) or not project.facts.get("cloned")):
        return given
    place = clone_place(runtime, project)
    if place is None:
        raise CloneMissing(
            f"project {project.name!r} has neither a path nor an address",
            hint="register it with a git_url or a local_path",
        )
    return place


def exists(path: Path) -> bool:
    """Whether something is there that this user can see."""
    try:
        return path.exists()
    except OSError:
        return False


def make_clone(runtime: Runtime, project: Project, transfer: Transfer | None) -> tuple[Path, bool]:
    """The path of the repository, and whether it was cloned by this call. Raises `CloneMissing`."""
    place = place_of(runtime, project)
    if exists(place):
        return place, False
    if place != clone_place(runtime, project) or transfer is None:
        raise CloneMissing(
            f"the repository {place} of project {project.name!r} is not there",
            hint="put it back, or register the project by its git_url",
        )
    if not runtime.settings.projects.auto_clone:
        raise CloneMissing(
            f"project {project.name!r} is not cloned here, and projects.auto_clone is off",
            hint=f"run `git clone {transfer.address.text} {place}`, then set the project up again",
        )
    try:
        return place, clone_into(transfer, place)
    except RatchetError as error:
        raise CloneMissing(
            f"project {project.name!r} could not be cloned: {error}", hint=error.hint
        ) from error


def _opened(runtime: Runtime, project: Project, transfer: Transfer | None, *, make: bool) -> Clone:
    if not make and not exists(place_of(runtime, project)):
        raise CloneMissing(
            f"project {project.name!r} is not cloned on this machine", hint="set the project up first"
        )
    path, _ = make_clone(runtime, project, transfer)
    repository = Repository.open(path, workspaces=worktrees_of(runtime, project.id))
    return Clone(path, repository, origin_of(runtime, project), transfer)


def _words(complaint: str) -> str:
    """What the remote itself said, such as its hooks."""
    lines = [line.removeprefix("remote:").strip() for line in complaint.splitlines() if line[:7] == "remote:"]
    said = hide_known(" ".join(line for line in lines if line))
    return f" ({said[:300]})" if said else ""


def _refusal(porcelain: bytes) -> str | None:
    """Why the remote did not take a ref, as it said so itself."""
    lines = decoded(porcelain).splitlines()
    return next((line.partition("\t")[2] for line in lines if line.startswith("!")), None)


def list_branches(
    runtime: Runtime, project_id: int, *, actor: str, request_id: str | None = None
) -> list[str]:
    """What the remote has now. Raises `CloneMissing` when the project is not here, and `RemoteFailed`."""
    project = _project(runtime, project_id)
    with open_clone(runtime, project, make=False) as clone:
        names = clone.remote_branches()
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        told = f"{len(names)} branches"
        tx.event("branches_listed", project_id=project_id, message=told, data={"count": len(names)})
    return names


def delete_branch(
    runtime: Runtime,
    project_id: int,
    branch: str,
    *,
    confirm: bool,
    actor: str,
    request_id: str | None = None,
) -> None:
    """Delete a branch of the remote. Never the base branch, nor that of a protocol that has not ended.

    Raises `Unconfirmed`, `Misuse` for what is no name of a branch, `NotFound`, `Conflict` and `RemoteFailed`.
    """
    project = _project(runtime, project_id)
    try:
        check_branch(branch)
        if not confirm:
            raise Unconfirmed(
                f"branch {branch!r} is not deleted without confirmation", hint="say so with `confirm`: true"
            )
        with runtime.ledger.read() as tx:
            check_deletable(tx, project, branch)
        with open_clone(runtime, project, make=False) as clone:
            clone.delete_remote_branch(branch)
    except RatchetError as error:
        _tell(runtime, project_id, "branch_delete_failed", branch, str(error), actor, request_id)
        raise
    _tell(runtime, project_id, "branch_deleted", branch, f"{branch} was deleted", actor, request_id)


def check_deletable(tx: Transaction, project: Project, branch: str) -> None:
    """Raises `Conflict` for a branch that work depends on."""
    if branch == project.base_branch:
        raise Conflict(f"{branch!r} is the base branch of project {project.name!r}, which is never deleted")
    protocol = find_protocol(tx, project.id, branch)
    if protocol is not None and not protocol.status.final:
        raise Conflict(
            f"{branch!r} is the branch of protocol {protocol.run_id}, which is {protocol.status}",
            hint="cancel the protocol first, or wait for its end",
        )


def _project(runtime: Runtime, project_id: int) -> Project:
    with runtime.ledger.read() as tx:
        return get_project(tx, project_id)


def _tell(
    runtime: Runtime,
    project_id: int,
    type: str,
    branch: str,
    message: str,
    actor: str,
    request_id: str | None,
) -> None:
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        tx.event(type, project_id=project_id, message=message, data={"branch": branch[:500]})


# A file of this name with `.lock` behind it must be possible, here and on the remote.
_LONGEST_NAME = 200
_QUOTES = "\"'`"


def check_branch(name: str) -> str:
    """The name itself. Raises `Misuse` for what git refuses, and for what a shell or a page could stumble over."""
    if not is_branch(name):
        raise Misuse(
            f"{name[:_LONGEST_NAME]!r} cannot be the name of a branch",
            hint="use letters, digits, dots, dashes and slashes, such as feature/login",
        )
    return name


def is_branch(name: str) -> bool:
    if not name.isprintable() or len(name.encode(errors="replace")) > _LONGEST_NAME:
        return False
    if name.startswith("-") or name in ("HEAD", "@") or any(quote in name for quote in _QUOTES):
        return False
    try:
        check_name(f"refs/heads/{name}")
    except Misuse:
        return False
    return True
