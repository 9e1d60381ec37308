"""One git repository: a bare one of Ratchet's own, or a person's clone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ratchet.files import NewFile, sync_file_system
from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError, decoded, exact_text, is_name
from ratchet.observe.logs import logger
from ratchet.workspaces.directories import Claim, remove_tree
from ratchet.workspaces.errors import (
    NotARepository,
    RepositoryCorrupt,
    RepositoryShallow,
    RepositoryUnwritable,
)
from ratchet.workspaces.git import Git, Refs, damaged, find_git
from ratchet.workspaces.objects import Objects, Surveyor
from ratchet.workspaces.overlay import OverlayCheckout, Overlays
from ratchet.workspaces.trees import (
    FILE,
    PROGRAM,
    Identity,
    LogEntry,
    TreeBounds,
    TreeChange,
    TreeEntry,
    commit_content,
    compare,
    edit,
    find,
    parse_commit,
    split_path,
    tree_of,
    walk,
)
from ratchet.workspaces.workspace import (
    FEW_FILES,
    Ground,
    Workspace,
    WorkspaceBackend,
    WorkspaceKind,
    check_git_files,
    choose,
    count_lines,
    diff_trees,
    writing,
)
from ratchet.workspaces.worktree import Pruned, TreeCheckout, WorktreeCheckout, prune


@dataclass(frozen=True, slots=True)
class FoundRepository:
    """`git` is bound to the directory that holds refs and objects, `own` to that of a linked worktree.

    `files` is a clone's directory of files, `None` for a bare repository.
    """

    git: Git
    own: Git
    objects: Path
    algorithm: str
    shallow: bool
    files: Path | None


def find_repository(path: Path, program: str) -> FoundRepository:
    """Look at exactly this path: a clone, a linked worktree or a bare repository. Nothing above it is searched."""
    directory = _git_directory(path)
    git = Git(program, directory)
    try:
        said = git.run(
            "rev-parse",
            "--is-bare-repository",
            "--is-shallow-repository",
            "--show-object-format",
            "--git-common-dir",
            "--git-path",
            "objects",
        )
    except RepositoryCorrupt as error:
        # Git says "not a repository" where HEAD, refs or objects are there and one of them cannot be read.
        raise damaged(path, "its HEAD, refs, objects or config cannot be read") from error
    bare, shallow, algorithm, common, objects = exact_text(said).splitlines()
    return FoundRepository(
        git=Git(program, (directory / common).resolve()),
        own=git,
        objects=(directory / objects).resolve(),
        algorithm=algorithm,
        shallow=shallow == "true",
        files=None if bare == "true" else path,
    )


def _git_directory(path: Path) -> Path:
    inner = path / ".git"
    try:
        if inner.is_dir():
            return inner
        if inner.is_file():
            word, _, target = decoded(inner.read_bytes()).strip().partition(": ")
            if word != "gitdir" or not (path / target).is_dir():
                raise damaged(path, f"{inner} does not lead to a git directory")
            return (path / target).resolve()
        if (path / "objects").is_dir() and (path / "refs").is_dir():
            return path
    except PermissionError as error:
        raise RepositoryUnwritable(
            f"the repository {path} cannot be read: {error.strerror}", hint="see who owns it"
        ) from error
    if not path.exists():
        raise NotARepository(f"{path} does not exist", hint="clone or create the repository first")
    raise NotARepository(
        f"{path} is not a git repository", hint=f"run `git init {path}`, or name the clone itself"
    )


# `git diff-files` and `git status` run a repository's filters; this only prints what the index holds.
_ENTRY = re.compile(
    rb"(?P<mode>\d+) (?P<hash>[0-9a-f]+) (?P<stage>\d)\t(?P<path>[^\0]+)\0"
    rb"  ctime: [^\n]+\n  mtime: (?P<seconds>\d+):(?P<nanoseconds>\d+)\n  dev: \d+\tino: (?P<inode>\d+)\n"
    rb"  uid: [^\n]+\n  size: (?P<size>\d+)\tflags: (?P<flags>[0-9a-f]+)\n"
)
_SKIPPED = 0x40000000
_SUBMODULE = b"160000"


def uncommitted(git: Git, files: Path, head: str | None, algorithm: str) -> list[str]:
    """Paths of a clone that are staged, changed or new, in order. Its index is not refreshed and no filter runs."""
    others = ("--others", "--exclude-standard", "--directory", "--no-empty-directory")
    new = _split(_run(git, files, "ls-files", "-z", *others))
    if head is None:
        staged = _split(_run(git, files, "ls-files", "-z"))
    else:
        staged = _split(git.run("diff-index", "--cached", "--name-only", "-z", head))
    listed = _run(git, files, "ls-files", "-z", "--stage", "--debug")
    touched = [
        _text(entry["path"]) for entry in _ENTRY.finditer(listed) if _is_touched(entry, files, algorithm)
    ]
    return sorted({*staged, *new, *touched})


def _is_touched(entry: re.Match[bytes], files: Path, algorithm: str) -> bool:
    """Whether a file differs from the index: by size and time, and where those differ by content."""
    if entry["stage"] != b"0":
        return True  # a merge is under way
    file = files / _text(entry["path"])
    try:
        found = file.lstat()
    except OSError:
        return not int(entry["flags"], 16) & _SKIPPED
    if entry["mode"] == _SUBMODULE:
        return not stat.S_ISDIR(found.st_mode)
    if _mode(found) != entry["mode"]:
        return True
    written = int(entry["seconds"]) * 1_000_000_000 + int(entry["nanoseconds"])
    same_time = (found.st_mtime_ns, found.st_size) == (written, int(entry["size"]))
    if same_time and found.st_ino & 0xFFFFFFFF == int(entry["inode"]):
        return False
    return _hash(file, found, algorithm) != entry["hash"].decode()


def _mode(found: os.stat_result) -> bytes:
    if stat.S_ISLNK(found.st_mode):
        return b"120000"
    return b"100755" if found.st_mode & stat.S_IXUSR else b"100644"


def _hash(file: Path, found: os.stat_result, algorithm: str) -> str | None:
    try:
        content = os.fsencode(file.readlink()) if stat.S_ISLNK(found.st_mode) else file.read_bytes()
    except OSError:
        return None
    return hashlib.new(algorithm, b"blob %d\0%s" % (len(content), content)).hexdigest()


def _run(git: Git, files: Path, *words: str) -> bytes:
    return git.run(*words, cwd=files, GIT_WORK_TREE=str(files))


def _split(said: bytes) -> list[str]:
    return [_text(part) for part in said.split(b"\0") if part]


def _text(path: bytes) -> str:
    return exact_text(path)


_AT_ONCE = ("-c", "core.fsync=loose-object", "-c", "core.fsyncMethod=batch")
# "PACK", the version, the number of objects.
_PACK_HEADER = 12


def _join(packs: Iterable[bytes], algorithm: str) -> bytes | None:
    """One pack with all that packs hold: an entry names others by hash, or by how far before it they are."""
    tail = hashlib.new(algorithm).digest_size
    count, bodies = 0, []
    for pack in packs:
        count += int.from_bytes(pack[8:_PACK_HEADER])
        bodies.append(pack[_PACK_HEADER:-tail])
    if not count:
        return None
    joined = b"".join((b"PACK", (2).to_bytes(4), count.to_bytes(4), *bodies))
    return joined + hashlib.new(algorithm, joined).digest()


_log = logger(__name__)
# What a session has no business to move. Remote branches are not among them: a person may fetch at any time.
GUARDED = ("refs/heads/", "refs/tags/", "refs/ratchet/")


class Repository:
    """Thread-safe, and any number of processes may use one repository at once.

    `workspaces` is the directory for workspaces, by default NAME.workspaces beside the repository. It serves this
    repository alone.
    """

    def __init__(
        self, path: Path, found: FoundRepository, *, workspaces: Path | None, bounds: TreeBounds
    ) -> None:
        self.path = path
        self.bare = found.files is None
        self.shallow = found.shallow
        self.bounds = bounds
        beside = path.with_name(f"{path.name.removesuffix('.git')}.workspaces")
        self.workspaces = (workspaces or beside).absolute()
        self._found = found
        self._git = found.git
        self._objects = Objects(found.own, found.objects, found.algorithm)
        self._refs = Refs(found.git)
        self._surveyor = Surveyor()
        self._overlays = Overlays(self.workspaces)
        self._ground: Ground | None = None
        self._open: set[Workspace] = set()
        self._mark = f"new-{secrets.token_hex(4)}"
        # One claim per process.
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, workspaces: Path | None = None, bounds: TreeBounds | None = None) -> Self:
        """Raises `NotARepository`, `RepositoryCorrupt`, or `Missing` without a git that is new enough."""
        path = path.resolve()
        return cls(
            path, find_repository(path, find_git()), workspaces=workspaces, bounds=bounds or TreeBounds()
        )

    @classmethod
    def create(cls, path: Path, *, workspaces: Path | None = None, bounds: TreeBounds | None = None) -> Self:
        """A new, empty, bare repository. It appears whole or not at all. Raises `Conflict` when something is there."""
        path = path.resolve()
        if path.exists():
            raise Conflict(f"{path} exists already", hint="open it, or choose another path")
        unfinished = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                words = ("init", "--bare", "--quiet", "--template=", "--initial-branch=main", ".")
                unfinished.mkdir()
                git = Git(find_git(), unfinished)
                git.run(*words)
                # Candidates that were not kept are history too; git must not collect them.
                git.run("config", "gc.pruneExpire", "never")
                unfinished.rename(path)
            finally:
                remove_tree(unfinished)
        return cls.open(path, workspaces=workspaces, bounds=bounds)

    def resolve(self, revision: str) -> str:
        """The hash of the commit that a revision names. Raises `NotFound` or `RepositoryCorrupt`."""
        return self._objects.commit(revision)[0]

    def ref(self, name: str) -> str | None:
        """What a ref such as refs/heads/main points at; `None` when it does not exist."""
        return self._refs.value(name)

    def refs(self, prefix: str) -> dict[str, str]:
        """Every ref below a prefix such as refs/heads/, and what it points at."""
        return self._refs.listed([prefix])

    def advance(self, ref: str, new: str, *, expected: str | None) -> None:
        """Move a ref to a commit, only if it still is where `expected` says; `None` creates it.

        Raises `StateChanged` when it moved meanwhile, `NotFound` without such a commit, `RepositoryLocked` after a
        bounded wait, and `Conflict` for a branch that a person has checked out: their files would seem changed.
        """
        self._refs.change({ref: (expected, self._movable(ref, new))})

    def sync_ref(self, ref: str) -> None:
        """Put a ref on disk that a process has moved which may have died right after. Raises `RepositoryUnwritable`."""
        self._refs.sync([ref])

    def ref_file(self, ref: str, commit: str) -> NewFile:
        """A ref as a file, to be written by the transaction of the ledger that gives it its name.

        It names that commit then, whatever it named before, and no log tells of it: not for what sessions may not move.
        """
        if ref.startswith(GUARDED):
            raise Misuse(f"{ref} moves only from where it is known to be", hint="advance it")
        return self._refs.file(ref, commit, self._objects.temporary(self._mark))

    def pack(self, commit: str, *, known: Sequence[str] = ()) -> bytes:
        """A git pack of what the history of a commit holds beside that of `known` commits."""
        asked = "".join(f"{each}\n" for each in (commit, *(f"^{other}" for other in known)))
        return self._git.run("pack-objects", "--revs", "--thin", "--stdout", "-q", input=asked.encode())

    def unpack(self, packs: Iterable[bytes]) -> None:
        """Take what packs hold, whose commits build upon what is here or in another of them.

        They are on disk then. One that fails may leave commits without their files: only refs say what is here.
        """
        joined = _join(packs, self._found.algorithm)
        if joined is not None:
            # As single objects, like those that are committed here: an index of a pack fails where an object comes
            # twice and others are built upon it. One wait for the disk instead of one for each.
            self._git.run(*_AT_ONCE, "unpack-objects", "-q", input=joined)

    def put_refs(self, refs: Mapping[str, str]) -> None:
        """Have refs name these commits, whatever they named before. They are on disk then."""
        if refs:
            asked = "".join(f"update {name} {commit}\n" for name, commit in refs.items()).encode()
            self._git.run("-c", "core.fsync=none", "update-ref", "--stdin", input=asked)
            sync_file_system(self._git.directory)

    def restore(self, moved: Mapping[str, tuple[str | None, str | None]]) -> None:
        """Put back refs that a session moved, as told by `RefsMoved.moved`."""
        self._refs.change({name: (now, before) for name, (before, now) in moved.items()})

    def commit_files(
        self,
        files: Mapping[str, bytes | None],
        *,
        parent: str | None,
        message: str,
        author: Identity | None = None,
        at: int | None = None,
        executable: Collection[str] = (),
    ) -> str:
        """Commit changed files on top of `parent` without a workspace; `None` deletes. The hash of the commit.

        A file keeps its mode; a new one is a program if it is among the `executable`. Without a parent it is the first
        commit of a history.
        """
        parents = [] if parent is None else [self.resolve(parent)]
        tree = self._tree(parents[0]) if parents else None
        paths = {path: split_path(path) for path in files}
        for path, parts in paths.items():
            if any("/".join(parts[:depth]) in files for depth in range(1, len(parts))):
                raise Misuse(f"{path!r} lies below another file of the same commit")
        with self._objects.batch(self._mark) as batch:
            changes: dict[str, TreeEntry | None] = {}
            for path, content in files.items():
                was = find(self._objects.tree, tree, paths[path]) if tree else None
                new = PROGRAM if path in executable else FILE
                mode = was.mode if was is not None and was.is_file else new
                changes[path] = None if content is None else TreeEntry(mode, batch.blob(content))
            made = edit(batch.read_tree, batch.tree, tree, changes) or batch.tree({})
            edits = [TreeChange(path, None, entry) for path, entry in changes.items()]
            check_git_files(self._git, edits, lambda entry: self._objects.content(entry.hash, batch))
            return batch.add(b"commit", commit_content(made, parents, message, author=author, at=at))

    def changes(self, old: str, new: str) -> list[TreeChange]:
        """The paths that differ between two commits."""
        return list(compare(self._objects.tree, self._tree(old), self._tree(new)))

    def diff(self, old: str, new: str) -> str:
        """The difference between two commits as a patch."""
        return diff_trees(self._git, self._tree(old), self._tree(new))

    def line_counts(self, old: str, new: str) -> dict[str, tuple[int, int] | None]:
        """How many lines each changed path gained and lost; `None` for one that is not text."""
        return count_lines(self._git, self._tree(old), self._tree(new))

    def log(self, commit: str, *, limit: int = 50) -> list[LogEntry]:
        """The history of a commit, itself first."""
        said = self._git.run("rev-list", f"--max-count={limit}", self.resolve(commit))
        return [parse_commit(*self._objects.commit(number)) for number in said.decode().split()]

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether a commit is part of the history of another. Raises `RepositoryShallow` when that cannot be told."""
        older, newer = self.resolve(ancestor), self.resolve(descendant)
        if older == newer or self._git.asks("merge-base", "--is-ancestor", older, newer):
            return True
        if self.shallow:
            raise RepositoryShallow(
                f"{self.path} is a shallow clone: whether {older[:12]} came before {newer[:12]} cannot be known",
                hint="get the whole history with `git fetch --unshallow`",
            )
        return False

    def read_file(self, commit: str, path: str) -> bytes:
        """The content of a file of a commit. Raises `NotFound`."""
        entry = find(self._objects.tree, self._tree(commit), split_path(path))
        if entry is None or not entry.is_file:
            raise NotFound("file", f"{commit}:{path}")
        return self._objects.read(entry.hash, "blob", limit=self.bounds.file_bytes)

    def list_files(self, commit: str) -> dict[str, TreeEntry]:
        """Every path of a commit that is not a directory. Raises `TooLarge` beyond the bounds."""
        tree = self._tree(commit)
        self._surveyor.survey(self._objects.tree, tree, self.bounds)
        return dict(walk(self._objects.tree, tree))

    def uncommitted(self) -> list[str]:
        """Paths of a clone whose content is in no commit; workspaces do not see those."""
        if self._found.files is None:
            return []
        head = self._objects.find_commit("HEAD")
        return uncommitted(
            self._found.own, self._found.files, head[0] if head else None, self._found.algorithm
        )

    def workspace(
        self,
        commit: str,
        *,
        kind: WorkspaceKind | None = None,
        name: str = "workspace",
        branch: bool = False,
        guard: Sequence[str] = GUARDED,
    ) -> Workspace:
        """A new directory with the files of a commit. Without a `kind` the size of the tree decides.

        For the kind worktree, `branch` gives it a branch of its own instead of a detached HEAD, and the refs below
        `guard` must not move while it is open except through Ratchet. Raises `UnsafePath` or `TooLarge` for a hostile
        commit, `KindUnavailable` for a kind this machine does not allow.
        """
        if not is_name(name):
            raise Misuse(
                f"a workspace cannot be called {name!r}", hint="use small letters, digits and dashes"
            )
        base, content = self._objects.commit(commit)
        tree = tree_of(content)
        ground = self._claimed()
        files = ground.survey(tree).files
        chosen, reason = choose(kind, files, lambda: self._overlays.refusal(ground))
        path = ground.claim.directory / ground.claim.new_name(name)
        checkout: WorkspaceBackend
        match chosen:
            case WorkspaceKind.TREE:
                checkout = TreeCheckout(ground, path, tree)
            case WorkspaceKind.WORKTREE:
                checkout = WorktreeCheckout(ground, path, tree, base, branch=branch, guard=guard)
            case WorkspaceKind.OVERLAY:
                checkout = OverlayCheckout(ground, self._overlays, path, tree)
        try:
            checkout.fill()
        except BaseException:
            checkout.remove()
            raise
        made = Workspace(
            ground, checkout, base=base, tree=tree, kind=chosen, reason=reason, on_discard=self._open.discard
        )
        self._open.add(made)
        return made

    def is_at_hand(self, commit: str) -> bool:
        """Whether a workspace of a commit is made in no time: its files are few, and in memory."""
        return self._ground is not None and self._objects.are_at_hand(commit, most=FEW_FILES)

    def refusal(self, kind: WorkspaceKind) -> str | None:
        """Why a kind of workspace cannot be had here, really tried; `None` when it can."""
        return self._overlays.refusal(self._claimed()) if kind is WorkspaceKind.OVERLAY else None

    def prune(self) -> Pruned:
        """Remove what dead processes left. Workspaces of living ones and worktrees of people stay."""
        return prune(self._git, self._refs, self._objects.directory, self.workspaces)

    def _prune_quietly(self) -> None:
        """Leftovers are in nobody's way, so whatever keeps them from being removed must not stop new work."""
        try:
            self.prune()
        except RatchetError as error:
            _log.warning("leftovers of dead processes stay", repository=str(self.path), error=str(error))

    def close(self) -> None:
        """Discard the workspaces that are still open, and end the git processes."""
        with self._lock:
            ground, self._ground = self._ground, None
        with contextlib.ExitStack() as last:
            last.callback(self._refs.close)
            last.callback(self._objects.close)
            if ground is not None and ground.claim.is_mine:
                last.callback(ground.claim.release)
                for workspace in list(self._open):
                    last.callback(workspace.discard)
            self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _movable(self, ref: str, new: str) -> str:
        """The commit that a ref may be moved to."""
        commit = self.resolve(new)
        taken = self._refs.checked_out_at(ref, bare=self.bare)
        if taken is not None:
            raise Conflict(
                f"{ref} is checked out at {taken}", hint="switch that directory to another branch first"
            )
        return commit

    def _tree(self, commit: str) -> str:
        return tree_of(self._objects.commit(commit)[1])

    def _claimed(self) -> Ground:
        with self._lock:
            if self._ground is None or not self._ground.claim.is_mine:
                self._open.clear()
                self._prune_quietly()
                claim = Claim.take(self.workspaces, self._git.directory)
                self._ground = Ground(
                    git=self._git,
                    objects=self._objects,
                    refs=self._refs,
                    surveyor=self._surveyor,
                    bounds=self.bounds,
                    claim=claim,
                )
            return self._ground
