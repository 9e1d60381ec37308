"""A directory checked out from a known commit that only one attempt writes, and what every kind of it needs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ratchet.kernel import decoded, exact_bytes, exact_text
from ratchet.workspaces.directories import Claim
from ratchet.workspaces.errors import (
    GitFailed,
    KindUnavailable,
    PatchRefused,
    RepositoryCorrupt,
    RepositoryUnwritable,
    UnsafePath,
    WorkspaceGone,
)
from ratchet.workspaces.files import OPEN_DIRECTORY, Ignore
from ratchet.workspaces.git import Git, Refs
from ratchet.workspaces.objects import ObjectBatch, Objects, Surveyor, TreeFacts
from ratchet.workspaces.trees import (
    LINK,
    Commit,
    Identity,
    ReadTree,
    TreeBounds,
    TreeChange,
    TreeEntry,
    commit_content,
    compare,
    find,
    plain_name,
    tree_of,
    unsafe_name,
)


class WorkspaceKind(StrEnum):
    """`tree`: files and no git. `worktree`: git works in it. `overlay`: a mount over a shared checkout."""

    TREE = "tree"
    WORKTREE = "worktree"
    OVERLAY = "overlay"


class WorkspaceBackend(Protocol):
    """A directory filled from a tree."""

    @property
    def path(self) -> Path: ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that a session in the directory should be given."""
        ...

    @property
    def readable(self) -> tuple[Path, ...]:
        """Directories outside that a session's git must be able to read. None of them need be writable."""
        ...

    def fill(self) -> None:
        """Make the directory, or make it again, exactly as the commit has it."""
        ...

    def refill(self, base: str, tree: str) -> None:
        """Bring the directory to another commit, whatever is in it. It stays the same directory, also to a session."""
        ...

    def snapshot(self, batch: ObjectBatch) -> str:
        """The tree of the directory as it is found."""
        ...

    def place(self, changes: Iterable[TreeChange]) -> None:
        """Write changes into the directory."""
        ...

    def own_commits(self) -> tuple[str, ...]:
        """Commits that were made inside, by something other than Ratchet. Raises `RefsMoved`."""
        ...

    def remove(self) -> None:
        """Leave nothing of it; again is fine."""
        ...


# Writing files costs some 50 µs each, a mount a few milliseconds whatever its size.
LARGE_FILES = 1000


def choose(
    wanted: WorkspaceKind | None, files: int, no_overlay: Callable[[], str | None]
) -> tuple[WorkspaceKind, str]:
    """The kind and the reason for it. `no_overlay` tells why this machine has no overlay mounts, asked when it matters.

    Raises `KindUnavailable` for a kind that was asked for and cannot be had.
    """
    if wanted is WorkspaceKind.OVERLAY and (refusal := no_overlay()) is not None:
        raise KindUnavailable(
            f"overlay workspaces are not possible here: {refusal}", hint="use the kind tree"
        )
    if wanted is not None:
        return wanted, "asked for"
    if files < LARGE_FILES:
        return WorkspaceKind.TREE, f"{files} files are few"
    refusal = no_overlay()
    if refusal is not None:
        return (
            WorkspaceKind.TREE,
            f"{files} files are many, but overlay mounts are not possible here: {refusal}",
        )
    return WorkspaceKind.OVERLAY, f"{files} files are many"


_ATTRIBUTES = (".gitattributes", "gitatt~1")
_MODULES = (".gitmodules", "gitmod~1")
_LONGEST_LINE = 2048
_LARGEST = 64 * 1024


def check_git_files(
    git: Git, changes: Iterable[TreeChange], content_of: Callable[[TreeEntry], bytes]
) -> None:
    """Raise `UnsafePath` for a changed .gitattributes or .gitmodules that git would refuse."""
    for change in changes:
        name = plain_name(change.path.rpartition("/")[2])
        if change.after is None or not change.after.is_file or name not in _ATTRIBUTES + _MODULES:
            continue
        content = content_of(change.after)
        if len(content) > _LARGEST:
            raise UnsafePath(
                change.path, f"has more than {_LARGEST} bytes, too many for a file that git reads"
            )
        if name in _ATTRIBUTES and max(map(len, content.split(b"\n"))) >= _LONGEST_LINE:
            raise UnsafePath(change.path, f"has a line of more than {_LONGEST_LINE} bytes")
        if name in _MODULES:
            _check_modules(git, change.path, content)


def _check_modules(git: Git, path: str, content: bytes) -> None:
    try:
        listed = git.run("config", "--file", "-", "--null", "--list", input=content)
    except (GitFailed, RepositoryCorrupt):  # git does not understand it, and then does not act on it
        return
    for line in decoded(listed).split("\0"):
        key, _, value = line.partition("\n")
        section, _, rest = key.partition(".")
        name, _, key = rest.rpartition(".")
        if section != "submodule":
            continue
        if ".." in name.replace("\\", "/").split("/"):
            raise UnsafePath(path, f"names a submodule {name!r}, which leads outside")
        if (
            key in ("url", "path") and (value.startswith("-") or "\n" in value or "%0a" in value.lower())
        ) or (key == "update" and value.startswith("!")):
            raise UnsafePath(path, f"sets {key} of a submodule to {value!r}, which would be run")


_HOPS = 40


def check_link(read: ReadTree, target_of: Callable[[TreeEntry], str], tree: str, path: str) -> None:
    """Raise `UnsafePath` when the link at `path` of the tree leads out of it, or in circles.

    What a link leads to need not exist. A step through something absent is taken by its name alone.
    """
    here: list[str] = []
    rest = path.split("/")[::-1]
    hops = 0
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                raise _leads(path, "leads out of the workspace")
            here.pop()
            continue
        if unsafe_name(part) is not None:
            raise _leads(path, "leads into a git directory")
        entry = find(read, tree, [*here, part])
        if entry is None or entry.mode != LINK:
            here.append(part)
            continue
        hops += 1
        if hops > _HOPS:
            raise _leads(path, "leads through too many links")
        target = target_of(entry)
        if target.startswith("/"):
            raise _leads(path, f"leads to {target}, out of the workspace")
        rest.extend(target.split("/")[::-1])


def _leads(path: str, how: str) -> UnsafePath:
    return UnsafePath(
        path,
        f"is a symbolic link that {how}",
        hint="make it relative and keep it inside, or set `outward_links`",
    )


_LONGEST_TARGET = 4096


@dataclass(frozen=True, slots=True)
class Ground:
    git: Git
    objects: Objects
    refs: Refs
    surveyor: Surveyor
    bounds: TreeBounds
    claim: Claim

    def survey(self, tree: str, batch: ObjectBatch | None = None) -> TreeFacts:
        """Look at a whole tree before it is checked out or committed. Raises `TooLarge` or `UnsafePath`."""
        read = self.objects.tree if batch is None else batch.read_tree
        facts = self.surveyor.survey(read, tree, self.bounds)

        def target_of(link: TreeEntry) -> str:
            return os.fsdecode(self.objects.content(link.hash, batch, limit=_LONGEST_TARGET))

        if not self.bounds.outward_links and not self.surveyor.has_sound_links(tree):
            for path in facts.links:
                check_link(read, target_of, tree, path)
            self.surveyor.note_sound_links(tree)
        return facts

    def check_git_files(self, changes: Iterable[TreeChange], batch: ObjectBatch) -> None:
        """Raise `UnsafePath` for changes to git's own files that git would refuse."""
        check_git_files(self.git, changes, lambda entry: self.objects.content(entry.hash, batch))

    def ignore(self, directory: Path) -> Ignore:
        return Ignore(self.git.program, self.claim.directory / "empty.git", directory)


@contextlib.contextmanager
def opened_root(path: Path) -> Iterator[int]:
    """The directory of a workspace. Raises `WorkspaceGone` or `UnsafePath` when it is not what was made there."""
    try:
        descriptor = os.open(path, OPEN_DIRECTORY)
    except FileNotFoundError:
        raise WorkspaceGone(
            f"the workspace {path} is gone", hint="discard it and begin a new attempt"
        ) from None
    except OSError as error:
        raise UnsafePath(
            ".", f"of the workspace was replaced: {error.strerror}", hint="discard it"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell what a failed write means."""
    try:
        yield
    except OSError as error:
        raise RepositoryUnwritable(
            f"the workspace {path} could not be written: {error.strerror}",
            hint="free some space or make the directory writable, then try again",
        ) from error


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
        checkout: WorkspaceBackend,
        *,
        base: str,
        tree: str,
        kind: WorkspaceKind,
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
        return self.kind is WorkspaceKind.TREE and holds_little(self.path)

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

    def changes(self) -> list[TreeChange]:
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

        A session that works in the directory continues in it. Raises `NotFound`, `UnsafePath` or `TooLarge` before
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
                    input=exact_bytes(patch),
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
    return exact_text(said)


def count_lines(git: Git, before: str, after: str) -> dict[str, tuple[int, int] | None]:
    """Added and removed lines by path, for every path that differs; `None` where git sees no text."""
    said = git.run(
        "diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", before, after
    )
    counts: dict[str, tuple[int, int] | None] = {}
    for line in exact_text(said).split("\0")[:-1]:
        added, removed, path = line.split("\t", 2)
        counts[path] = None if added == "-" else (int(added), int(removed))
    return counts
