"""The worktree that people look at: the newest kept commit of a protocol, checked out beside the clone.

Nobody works in it: each attempt has a workspace of its own. It is never written over when somebody has changed it.
Those of protocols that have ended are removed when there are too many: git looks at all of them to make another one.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from ratchet.ledger.protocols import Protocol, change_protocol, find_protocol, get_protocol
from ratchet.projects.places import worktrees_of
from ratchet.protocols.stream import Stream
from ratchet.workspaces.git import find_git

_SECONDS = 120.0
_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never")


def show_worktree(stream: Stream, commit: str) -> None:
    """Bring it to `commit`; when that cannot be done, an event says why, and the work goes on."""
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
    """Keep only as many worktrees of ended protocols as the settings say, the newest, and whatever somebody changed."""
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
        # A directory that somebody deleted is still on git's list.
        _git(clone, "worktree", "prune")
        return _git(clone, "worktree", "add", "--detach", "--force", str(path), commit)
    changed = _git(path, "diff", "--quiet", "HEAD")
    if changed is not None:
        return f"the worktree {path} has changes of somebody; it stays as it is"
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
