"""Plain directories and worktrees of git as workspaces, and removing what dead processes left of them.

The files are written here and not by git, so that no filter or hook of the repository runs. What the session does with
git stays its own affair: its commits are noted and not taken, refs it moves are noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.files import empty
from ratchet.kernel import decoded
from ratchet.workspaces.directories import dead_claims, remove_tree, unmount_below
from ratchet.workspaces.errors import RefsMoved, UnsafePath
from ratchet.workspaces.files import DirectorySnapshot, Filler, WrittenFiles
from ratchet.workspaces.git import Git, Refs
from ratchet.workspaces.objects import ObjectBatch, remove_unfinished
from ratchet.workspaces.trees import RATCHET, TreeChange
from ratchet.workspaces.workspace import Ground, opened_root, writing


class TreeCheckout:
    def __init__(self, ground: Ground, path: Path, tree: str) -> None:
        self.path = path
        self._ground = ground
        self._tree = tree
        self._written = WrittenFiles()

    @property
    def environment(self) -> Mapping[str, str]:
        # Git would look for a repository above, and take the person's own for the one to work in.
        return {"GIT_CEILING_DIRECTORIES": str(self.path.parent)}

    @property
    def readable(self) -> tuple[Path, ...]:
        return ()

    def fill(self) -> None:
        self._written = WrittenFiles()
        with writing(self.path):
            made = self._made()
            with opened_root(self.path) as root:
                if not made:
                    empty(root)
                Filler(self._ground.objects, self._ground.bounds, self._written).fill(root, self._tree)

    def _made(self) -> bool:
        """Make the directory; false if it was there already."""
        try:
            self.path.mkdir()
        except FileExistsError:
            return False
        return True

    def refill(self, base: str, tree: str) -> None:
        self._tree = tree
        self.fill()

    def snapshot(self, batch: ObjectBatch) -> str:
        return whole_snapshot(self._ground, self.path, self._tree, batch, self._written)

    def place(self, changes: Iterable[TreeChange]) -> None:
        with writing(self.path), opened_root(self.path) as root:
            Filler(self._ground.objects, self._ground.bounds, self._written).change(root, changes)

    def own_commits(self) -> tuple[str, ...]:
        return ()

    def remove(self) -> None:
        remove_tree(self.path)


def whole_snapshot(
    ground: Ground,
    path: Path,
    tree: str,
    batch: ObjectBatch,
    written: WrittenFiles,
    *,
    skip: str | None = None,
) -> str:
    """The tree of a directory that holds everything, `skip` at its top left out."""
    ignore = ground.ignore(path)
    try:
        with opened_root(path) as root:
            return DirectorySnapshot(batch, ground.bounds, written, ignore, skip=skip).take(root, tree)
    finally:
        ignore.close()


_UNFINISHED = "ratchet-"


class Administration:
    """That of the worktree at `path`, whose name must be unique."""

    def __init__(self, repository: Path, path: Path) -> None:
        self.directory = repository / "worktrees" / path.name
        self._unfinished = repository / (_UNFINISHED + path.name)
        self._path = path

    @property
    def pointer(self) -> str:
        """The content of the worktree's own file `.git`."""
        return f"gitdir: {self.directory}\n"

    def make(self, head: str) -> None:
        self._unfinished.mkdir()
        (self._unfinished / "HEAD").write_text(f"{head}\n")
        (self._unfinished / "commondir").write_text("../..\n")
        (self._unfinished / "gitdir").write_text(f"{self._path / '.git'}\n")
        while True:
            # Git removes the directory with its last worktree.
            self.directory.parent.mkdir(exist_ok=True)
            try:
                self._unfinished.rename(self.directory)
            except FileNotFoundError:
                continue
            return

    def point(self, head: str) -> None:
        """Give it another HEAD, the whole of it at once."""
        unfinished = self.directory / "HEAD.ratchet"
        unfinished.write_text(f"{head}\n")
        unfinished.replace(self.directory / "HEAD")

    def is_pointed_at(self) -> bool:
        """Whether the worktree's own file still is the one that was written."""
        file = self._path / ".git"
        return not file.is_symlink() and file.is_file() and file.read_bytes() == self.pointer.encode()

    def remove(self) -> None:
        """Also where a session has damaged it; absent is fine."""
        _remove(self.directory, self._unfinished)


def remove_administrations(repository: Path, claim: str) -> None:
    """Those that a dead process left."""
    for directory in (repository / "worktrees").glob(f"*-{claim}-*"):
        _remove(directory, repository / (_UNFINISHED + directory.name))
    for unfinished in repository.glob(f"{_UNFINISHED}*-{claim}-*"):
        remove_tree(unfinished)


def _remove(directory: Path, aside: Path) -> None:
    try:
        directory.rename(aside)
    except OSError:  # not there, or a session put something in the way
        remove_tree(directory)
    remove_tree(aside)


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
        self._written = WrittenFiles()
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
        self._written = WrittenFiles()
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
        self._written = WrittenFiles()
        if self._branch is not None:
            self._ground.refs.change({self._branch: (self._ground.refs.value(self._branch), base)})
        with writing(self.path), opened_root(self.path) as root:
            self._administration.point(f"ref: {self._branch}" if self._branch else base)
            empty(root, but=".git")
            Filler(self._ground.objects, self._ground.bounds, self._written).fill(root, tree)
        Git(self._ground.git.program, self._administration.directory).run("read-tree", base)

    def snapshot(self, batch: ObjectBatch) -> str:
        self._check_pointer()
        return whole_snapshot(self._ground, self.path, self._tree, batch, self._written, skip=".git")

    def place(self, changes: Iterable[TreeChange]) -> None:
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
            content = decoded((self._administration.directory / "HEAD").read_bytes()).strip()
        except OSError:
            return None
        if content.startswith("ref: refs/"):
            content = self._ground.refs.value(content.removeprefix("ref: ")) or ""
        return content if _HASH.fullmatch(content) else None


_LONG_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Pruned:
    """Names of the workspaces that were removed, and how many unfinished objects."""

    workspaces: tuple[str, ...]
    objects: int


def prune(git: Git, refs: Refs, objects: Path, root: Path) -> Pruned:
    """Remove the workspaces of dead processes with all that git knows of them.

    Worktrees that a person made carry no name of ours and are never looked at, dirty or not.
    """
    names: list[str] = []
    unfinished = 0
    for claim in dead_claims(root):
        found = {each.name for each in (root / claim).glob(f"*-{claim}-*") if each.is_dir()}
        unmount_below(root / claim)
        remove_administrations(git.directory, claim)
        for name, number in refs.listed([BRANCHES]).items():
            if f"-{claim}-" in name:
                refs.change({name: (number, None)})
        unfinished += remove_unfinished(objects, claim)
        names += sorted(name for name in found if not name.startswith("."))
    # Those of commits without a workspace have no owner; none takes that long.
    unfinished += remove_unfinished(objects, "new-*", older_than=_LONG_SECONDS)
    return Pruned(tuple(names), unfinished)
