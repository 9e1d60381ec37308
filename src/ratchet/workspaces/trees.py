"""Trees, commits and their authors as values: parsed, written, compared, edited, within bounds."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ratchet.kernel import Misuse, decoded, exact_text
from ratchet.workspaces.errors import UnsafePath


@dataclass(frozen=True, slots=True)
class TreeBounds:
    """Limits of one tree. Bytes count what is read or written, so unchanged files of a base are free.

    `outward_links` lets symbolic links lead out of the workspace, for repositories that need them. With
    `without_litter` what tools leave behind is no part of a commit: such a file stays as the base has it.
    """

    file_bytes: int = 64 * 1024 * 1024
    total_bytes: int = 1024 * 1024 * 1024
    files: int = 200_000
    depth: int = 100
    outward_links: bool = False
    without_litter: bool = False


_LITTER = frozenset(
    {
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints"),
        *(".tox", ".nox", ".coverage", ".cache", ".DS_Store", "Thumbs.db"),
        *(".idea", ".vscode", ".claude", ".codex", ".cursor"),
    }
)
_LITTER_ENDS = (".pyc", ".pyo", ".swp", ".swo", "~", ".egg-info")


@functools.lru_cache(maxsize=4096)
def is_litter(name: str) -> bool:
    """Whether a file or directory of this name is what compilers, caches and editors leave behind."""
    return name in _LITTER or name.endswith(_LITTER_ENDS) or name.startswith((".#", "#"))


# Code points that HFS+ ignores in names.
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 255


@functools.lru_cache(maxsize=4096)
def unsafe_name(name: str) -> str | None:
    """Why one component of a path cannot be checked out anywhere, or `None`."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return "is not a file name"
    if any(plain_name(part) in (".git", "git~1") for part in name.split("\\")):
        return "would be read as a git directory"
    return None


def plain_name(name: str) -> str:
    """The name as a file system of macOS or Windows reads it."""
    return name.translate(_IGNORED).partition(":")[0].rstrip(" .").lower()


@functools.lru_cache(maxsize=4096)
def unwanted_name(name: str) -> str | None:
    """Why a new name is refused, or `None`. Stricter than `unsafe_name`, which old commits must pass."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if len(encoded) > _LONGEST:
        return f"has a name of more than {_LONGEST} bytes"
    if _CONTROL.search(name):
        return "has a control character in its name"
    return unsafe_name(name)


def split_path(path: str) -> list[str]:
    """The components of a path in a tree. Raises `Misuse` for a path that could leave it."""
    parts = path.split("/")
    for part in parts:
        reason = unwanted_name(part)
        if reason is not None:
            raise Misuse(f"the path {path!r} {reason}", hint="give a relative path such as src/app.py")
    return parts


DIRECTORY = 0o40000
FILE = 0o100644
PROGRAM = 0o100755
LINK = 0o120000
SUBMODULE = 0o160000
# Early versions of git wrote files that a group may write; they are plain files.
_MODES = {mode: mode for mode in (DIRECTORY, FILE, PROGRAM, LINK, SUBMODULE)} | {0o100664: FILE}


class TreeEntry(NamedTuple):
    mode: int
    hash: str

    @property
    def is_file(self) -> bool:
        return self.mode & 0o170000 == 0o100000


Tree: TypeAlias = Mapping[str, TreeEntry]
ReadTree: TypeAlias = Callable[[str], Tree]


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One path that differs between two trees; `None` on the side where it is absent."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None

    @property
    def status(self) -> str:
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def parse_tree(content: bytes, hash_bytes: int) -> dict[str, TreeEntry]:
    """The entries of a tree object. Raises `UnsafePath` for what no checkout may ever write."""
    entries: dict[str, TreeEntry] = {}
    at = 0
    while at < len(content):
        space = content.find(b" ", at)
        end = content.find(b"\0", space)
        if space < 0 or end < 0 or end + 1 + hash_bytes > len(content):
            raise UnsafePath("", "is not a well-formed tree", hint="look with `git fsck`")
        name = exact_text(content[space + 1 : end])
        reason = unsafe_name(name) if name.isascii() or _is_text(name) else "has a name that is not UTF-8"
        if reason is None and name in entries:
            reason = "is in its directory twice"
        mode = int(content[at:space], 8) if content[at:space].isdigit() else 0
        if reason is None and mode not in _MODES:
            reason = f"has the unknown mode {decoded(content[at:space])}"
        if reason is not None:
            raise UnsafePath(name, reason, hint="this commit must not be checked out; look with `git fsck`")
        at = end + 1 + hash_bytes
        entries[name] = TreeEntry(_MODES[mode], content[end + 1 : at].hex())
    return entries


def tree_content(entries: Tree) -> bytes:
    """The bytes of a tree object. Git sorts a directory as if its name ended with a slash."""
    lines = [
        (name.encode() + (b"/" if entry.mode == DIRECTORY else b""), name.encode(), entry)
        for name, entry in entries.items()
    ]
    lines.sort(key=lambda line: line[0])
    return b"".join(b"%o %s\0%s" % (entry.mode, name, bytes.fromhex(entry.hash)) for _, name, entry in lines)


def find(read: ReadTree, tree: str, parts: list[str]) -> TreeEntry | None:
    """The entry at a path, or `None`. Links are not followed."""
    entry: TreeEntry | None = TreeEntry(DIRECTORY, tree)
    for part in parts:
        if entry is None or entry.mode != DIRECTORY:
            return None
        entry = read(entry.hash).get(part)
    return entry


def walk(read: ReadTree, tree: str, prefix: str = "") -> Iterator[tuple[str, TreeEntry]]:
    """Every entry that is not a directory, with its path."""
    for name, entry in read(tree).items():
        if entry.mode == DIRECTORY:
            yield from walk(read, entry.hash, f"{prefix}{name}/")
        else:
            yield prefix + name, entry


def compare(read: ReadTree, before: str | None, after: str | None, prefix: str = "") -> Iterator[TreeChange]:
    """What differs between two trees, in the order of names. Equal subtrees are not looked into."""
    if before == after:
        return
    old, new = read(before) if before else {}, read(after) if after else {}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        path = prefix + name
        was_below, now_below = subtree(was), subtree(now)
        if was_below or now_below:
            yield from compare(read, was_below, now_below, path + "/")
        if not (was_below and now_below):
            was, now = None if was_below else was, None if now_below else now
            if was or now:
                yield TreeChange(path, was, now)


def edit(
    read: ReadTree, write: Callable[[Tree], str], tree: str | None, changes: Mapping[str, TreeEntry | None]
) -> str | None:
    """The tree with entries set or removed by path; `None` when nothing is left. Paths must be checked before."""
    entries = dict(read(tree)) if tree else {}
    below: dict[str, dict[str, TreeEntry | None]] = {}
    for path, entry in changes.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = entry
        elif entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
    for name, rest_of in below.items():
        edited = edit(read, write, subtree(entries.get(name)), rest_of)
        if edited is not None:
            entries[name] = TreeEntry(DIRECTORY, edited)
        elif subtree(entries.get(name)):
            del entries[name]
    return write(entries) if entries else None


def subtree(entry: TreeEntry | None) -> str | None:
    """The hash of a directory, `None` for anything else."""
    return entry.hash if entry is not None and entry.mode == DIRECTORY else None


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Commit:
    """What `Workspace.commit` made.

    Without `changes` the tree was as before: `hash` is then the base itself and nothing was written. `own_commits` are
    those that the session made by itself; they are not part of the history that is kept.
    """

    hash: str
    tree: str
    changes: tuple[TreeChange, ...]
    own_commits: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.changes)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit of the history. In a shallow clone the parents of the last one may be absent."""

    hash: str
    tree: str
    parents: tuple[str, ...]
    author: str
    at: int
    message: str


def tree_of(content: bytes) -> str:
    """The tree of a commit, without reading more of it."""
    return content[len(b"tree ") : content.index(b"\n")].decode()


def parse_commit(number: str, content: bytes) -> LogEntry:
    head, _, message = content.partition(b"\n\n")
    fields: dict[str, list[str]] = {}
    for line in decoded(head).splitlines():
        name, _, value = line.partition(" ")
        fields.setdefault(name, []).append(value)
    author, _, when = fields.get("author", [""])[0].rpartition("> ")
    at = when.split(" ")[0]
    return LogEntry(
        hash=number,
        tree=fields.get("tree", [""])[0],
        parents=tuple(fields.get("parent", [])),
        author=author + ">" if author else "",
        at=int(at) if at.lstrip("-").isdigit() else 0,
        message=decoded(message),
    )


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    email: str

    def __post_init__(self) -> None:
        for value in (self.name, self.email):
            if (
                not value.strip()
                or any(character in value for character in "<>\n\0")
                or not value.isprintable()
            ):
                raise Misuse(f"{value!r} cannot stand in a commit", hint="give a plain name and address")

    def line(self, at: int) -> bytes:
        return f"{self.name.strip()} <{self.email.strip()}> {at} +0000".encode()


RATCHET = Identity("Ratchet", "ratchet@localhost")


def commit_content(
    tree: str, parents: list[str], message: str, *, author: Identity | None = None, at: int | None = None
) -> bytes:
    """A commit object. The same arguments, time included, give the same bytes."""
    moment = int(time.time()) if at is None else at
    lines = [
        f"tree {tree}".encode(),
        *(f"parent {parent}".encode() for parent in parents),
        b"author " + (author or RATCHET).line(moment),
        b"committer " + RATCHET.line(moment),
        b"",
        # A message comes from outside; what a commit cannot hold is replaced rather than losing the work over it.
        message.replace("\0", "\N{REPLACEMENT CHARACTER}").rstrip().encode(errors="replace") + b"\n",
    ]
    return b"\n".join(lines)
