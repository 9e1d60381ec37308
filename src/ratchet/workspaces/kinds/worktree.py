"""A worktree of git, for sessions that expect `git status` to work.

The files are written here and not by git, so that no filter or hook of the repository runs. What the session does with
git stays its own affair: its commits are noted and not taken, refs it moves are noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ratchet.workspaces.administration import Administration
from ratchet.workspaces.errors import RefsMoved, UnsafePath
from ratchet.workspaces.fill import Filler, Written
from ratchet.workspaces.git import Git
from ratchet.workspaces.ground import Ground, opened_root, writing
from ratchet.workspaces.identity import RATCHET
from ratchet.workspaces.kinds.tree import whole_snapshot
from ratchet.workspaces.loose import Batch
from ratchet.workspaces.removal import empty, remove_tree
from ratchet.workspaces.trees import Change

# Branches of workspaces; nothing else is kept here, and they end with their workspace.
BRANCHES = "refs/heads/ratchet/"
_NOTED = 100
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class WorktreeCheckout:
    def __init__(
        self, ground: Ground, path: Path, tree: str, base: str, *, branch: bool, guard: Sequence[str]
    ) -> None:
        self.path = path
        self._ground = ground
        self._tree = tree
        self._base = base
        self._branch = BRANCHES + path.name if branch else None
        self._guard = guard
        self._administration = Administration(ground.git.directory, path)
        self._written = Written()
        self._refs: dict[str, str] = {}

    @property
    def environment(self) -> Mapping[str, str]:
        """Who commits, so that a session need not write that into the repository's configuration."""
        return {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", RATCHET.name), ("EMAIL", RATCHET.email))
        }

    @property
    def readable(self) -> tuple[Path, ...]:
        return (self._ground.git.directory,)

    def fill(self) -> None:
        self.remove()
        self._written = Written()
        if self._branch is not None:
            self._ground.refs.change({self._branch: (None, self._base)})
        with writing(self.path):
            self._administration.make(f"ref: {self._branch}" if self._branch else self._base)
            self.path.mkdir()
            (self.path / ".git").write_text(self._administration.pointer)
            with opened_root(self.path) as root:
                Filler(self._ground.objects, self._ground.bounds, self._written).fill(root, self._tree)
        Git(self._ground.git.program, self._administration.directory).run("read-tree", self._base)
        self._refs = self._listed()

    def refill(self, base: str, tree: str) -> None:
        self._check_pointer()
        self._base, self._tree = base, tree
        self._written = Written()
        if self._branch is not None:
            self._ground.refs.change({self._branch: (self._ground.refs.value(self._branch), base)})
        with writing(self.path), opened_root(self.path) as root:
            self._administration.point(f"ref: {self._branch}" if self._branch else base)
            empty(root, but=".git")
            Filler(self._ground.objects, self._ground.bounds, self._written).fill(root, tree)
        Git(self._ground.git.program, self._administration.directory).run("read-tree", base)

    def snapshot(self, batch: Batch) -> str:
        self._check_pointer()
        return whole_snapshot(self._ground, self.path, self._tree, batch, self._written, skip=".git")

    def place(self, changes: Iterable[Change]) -> None:
        with writing(self.path), opened_root(self.path) as root:
            Filler(self._ground.objects, self._ground.bounds, self._written).change(root, changes)

    def own_commits(self) -> tuple[str, ...]:
        now = self._listed()
        moved = {
            name: (self._refs.get(name), now.get(name))
            for name in self._refs.keys() | now.keys()
            if self._refs.get(name) != now.get(name)
            and not (name in now and self._ground.refs.moved_by_ratchet(name, now[name]))
        }
        if moved:
            raise RefsMoved(moved)
        head = self._head()
        if head is None or head == self._base:
            return ()
        said = self._ground.git.run("rev-list", f"--max-count={_NOTED}", head, "--not", self._base)
        return tuple(said.decode().split())

    def remove(self) -> None:
        """What `git worktree remove --force` does, also where the session has damaged it."""
        remove_tree(self.path)
        self._administration.remove()
        if self._branch is not None:
            self._remove_branch(self._branch)

    def _check_pointer(self) -> None:
        if not self._administration.is_pointed_at():
            raise UnsafePath(
                ".git", "was removed or replaced", hint="discard the workspace; its session broke it"
            )

    def _remove_branch(self, name: str) -> None:
        current = self._ground.refs.value(name)
        if current is not None:
            self._ground.refs.change({name: (current, None)})

    def _listed(self) -> dict[str, str]:
        found = self._ground.refs.listed(self._guard)
        return {name: number for name, number in found.items() if not name.startswith(BRANCHES)}

    def _head(self) -> str | None:
        """Where the session's HEAD is; `None` when that cannot be told."""
        try:
            content = (self._administration.directory / "HEAD").read_text(errors="replace").strip()
        except OSError:
            return None
        if content.startswith("ref: refs/"):
            content = self._ground.refs.value(content.removeprefix("ref: ")) or ""
        return content if _HASH.fullmatch(content) else None
