"""A directory checked out from a known commit that only one attempt writes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ratchet.workspaces.checkout import Checkout, Kind
from ratchet.workspaces.errors import GitFailed, PatchRefused, WorkspaceGone
from ratchet.workspaces.git import Git
from ratchet.workspaces.ground import Ground
from ratchet.workspaces.history import Commit, tree_of
from ratchet.workspaces.identity import Identity, commit_content
from ratchet.workspaces.trees import Change, compare

FEW_FILES = 32
_FEW_BYTES = 256 * 1024


def holds_little(directory: Path) -> bool:
    """Whether there are a few small files and nothing else. It looks no further than it takes to say no.

    What git has rules for (.gitignore and the like) is not little: it has to be asked.
    """
    count = size = 0
    folders = [os.fspath(directory)]
    try:
        while folders:
            with os.scandir(folders.pop()) as found:
                for entry in found:
                    count += 1
                    if count > FEW_FILES or entry.name.startswith(".git"):
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    if not entry.is_file(follow_symlinks=False):
                        return False
                    size += entry.stat(follow_symlinks=False).st_size
                    if size > _FEW_BYTES:
                        return False
    except OSError:
        return False
    return True


class Workspace:
    """Made by `Repository.workspace`. Leave it with `discard`, or use it as a context manager.

    `kind` is what was made and `reason` why, for the record of the attempt.
    """

    def __init__(
        self,
        ground: Ground,
        checkout: Checkout,
        *,
        base: str,
        tree: str,
        kind: Kind,
        reason: str,
        on_discard: Callable[[Workspace], None],
    ) -> None:
        self.base = base
        self.kind = kind
        self.reason = reason
        self._ground = ground
        self._checkout = checkout
        self._tree = tree
        self._on_discard = on_discard
        self._discarded = False
        # One operation at a time: a commit must not read what a reset is writing.
        self._lock = threading.RLock()

    @property
    def path(self) -> Path:
        return self._checkout.path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables to give to a session in this workspace, so that its git stays inside."""
        return self._checkout.environment

    @property
    def readable(self) -> tuple[Path, ...]:
        """What a sandbox must let a session read besides the workspace, for its git to work; never to write."""
        return self._checkout.readable

    def holds_little(self) -> bool:
        """Whether it is committed or discarded in no time: a plain directory with a few small files."""
        return self.kind is Kind.TREE and holds_little(self.path)

    def commit(
        self,
        message: str,
        *,
        author: Identity | None = None,
        at: int | None = None,
    ) -> Commit:
        """Commit the whole tree as found, on top of `base`. With `author` and `at` the hash depends on nothing else.

        New files that the tree's .gitignore files name are left out. Content is taken byte for byte: no filter and no
        line-end conversion runs. Raises `UnsafePath` or `TooLarge`, and `RefsMoved` when the session moved refs; the
        repository is then as it was. When it returns, any process can read the commit, whatever dies, a power cut
        included.
        """
        with self._held():
            own_commits = self._checkout.own_commits()
            with self._ground.objects.batch(self._ground.claim.name) as batch:
                tree = self._checkout.snapshot(batch)
                if tree == self._tree:
                    return Commit(self.base, tree, (), own_commits)
                changes = tuple(compare(batch.read_tree, self._tree, tree))
                self._ground.survey(tree, batch)
                self._ground.check_git_files(changes, batch)
                content = commit_content(tree, [self.base], message, author=author, at=at)
                number = batch.add(b"commit", content)
            return Commit(number, tree, changes, own_commits)

    def changes(self) -> list[Change]:
        """What differs from the base. Nothing is written."""
        with self._held(), self._ground.objects.batch(self._ground.claim.name, dry=True) as batch:
            tree = self._checkout.snapshot(batch)
            return list(compare(batch.read_tree, self._tree, tree))

    def diff(self) -> str:
        """The changes as a patch that `apply` takes. Leaves unreferenced objects behind, which git collects in time."""
        with self._held():
            return diff_trees(self._ground.git, self._tree, self._written_tree())

    def apply(self, patch: str) -> None:
        """Apply a patch to the workspace as it is, all of it or, raising `PatchRefused`, nothing."""
        with self._held():
            before = self._written_tree()
            after = self._patched(before, patch)
            self._ground.survey(after)
            self._checkout.place(compare(self._ground.objects.tree, before, after))

    def reset(self) -> None:
        """Bring the directory back to the base, ignored files included."""
        with self._held():
            self._checkout.fill()

    def rebase(self, commit: str) -> None:
        """Make another commit the base, and the directory what that holds, ignored files included.

        A session that works in the directory goes on in it. Raises `NotFound`, `UnsafePath` or `TooLarge` before
        anything is touched. When writing fails the directory is neither; `reset` or another `rebase` makes it whole.
        """
        with self._held():
            base, content = self._ground.objects.commit(commit)
            tree = tree_of(content)
            self._ground.survey(tree)
            self.base, self._tree = base, tree
            self._checkout.refill(base, tree)

    def discard(self) -> None:
        """Remove the directory and all that belongs to it. A second time does nothing."""
        with self._lock:
            if not self._discarded:
                self._checkout.remove()
                self._discarded = True
                self._on_discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _held(self) -> threading.RLock:
        if self._discarded:
            raise WorkspaceGone(f"the workspace {self.path} was discarded", hint="make a new one")
        return self._lock

    def _written_tree(self) -> str:
        with self._ground.objects.batch(self._ground.claim.name) as batch:
            return self._checkout.snapshot(batch)

    def _patched(self, tree: str, patch: str) -> str:
        """The tree with a patch applied, worked out in an index of its own: git never writes into the directory."""
        index = self.path.with_name(f"{self.name}.index")
        git = self._ground.git
        try:
            git.run("read-tree", tree, GIT_INDEX_FILE=str(index))
            try:
                git.run(
                    "apply",
                    "--cached",
                    "--whitespace=nowarn",
                    "-",
                    input=patch.encode(errors="surrogateescape"),
                    GIT_INDEX_FILE=str(index),
                )
            except GitFailed as error:
                raise PatchRefused(
                    f"the patch does not apply: {error}", hint="make it against the workspace as it is"
                ) from error
            return git.run("write-tree", GIT_INDEX_FILE=str(index)).decode().strip()
        finally:
            index.unlink(missing_ok=True)
            index.with_name(f"{index.name}.lock").unlink(missing_ok=True)


def diff_trees(git: Git, before: str, after: str) -> str:
    """A patch between two trees or commits, without external programs and with full hashes."""
    style = ("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
    said = git.run("diff-tree", "-r", "-p", *style, before, after)
    return said.decode(errors="surrogateescape")


def count_lines(git: Git, before: str, after: str) -> dict[str, tuple[int, int] | None]:
    """Added and removed lines by path, for every path that differs; `None` where git sees no text."""
    said = git.run(
        "diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", before, after
    )
    counts: dict[str, tuple[int, int] | None] = {}
    for line in said.decode(errors="surrogateescape").split("\0")[:-1]:
        added, removed, path = line.split("\t", 2)
        counts[path] = None if added == "-" else (int(added), int(removed))
    return counts
