"""Trees as values: parsed, written, compared, edited. A tree is what one directory of a commit holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ratchet.workspaces.errors import UnsafePath
from ratchet.workspaces.names import unsafe_name

DIRECTORY = 0o40000
FILE = 0o100644
PROGRAM = 0o100755
LINK = 0o120000
SUBMODULE = 0o160000
# Early versions of git wrote files that a group may write; they are plain files.
_MODES = {mode: mode for mode in (DIRECTORY, FILE, PROGRAM, LINK, SUBMODULE)} | {0o100664: FILE}


class Entry(NamedTuple):
    mode: int
    hash: str

    @property
    def is_file(self) -> bool:
        return self.mode & 0o170000 == 0o100000


Tree: TypeAlias = Mapping[str, Entry]
ReadTree: TypeAlias = Callable[[str], Tree]


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between two trees; `None` on the side where it is absent."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def status(self) -> str:
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


def parse_tree(content: bytes, hash_bytes: int) -> dict[str, Entry]:
    """The entries of a tree object. Raises `UnsafePath` for what no checkout may ever write."""
    entries: dict[str, Entry] = {}
    at = 0
    while at < len(content):
        space = content.find(b" ", at)
        end = content.find(b"\0", space)
        if space < 0 or end < 0 or end + 1 + hash_bytes > len(content):
            raise UnsafePath("", "is not a well-formed tree", hint="look with `git fsck`")
        name = content[space + 1 : end].decode(errors="surrogateescape")
        reason = unsafe_name(name) if name.isascii() or _is_text(name) else "has a name that is not UTF-8"
        if reason is None and name in entries:
            reason = "is in its directory twice"
        mode = int(content[at:space], 8) if content[at:space].isdigit() else 0
        if reason is None and mode not in _MODES:
            reason = f"has the unknown mode {content[at:space].decode(errors='replace')}"
        if reason is not None:
            raise UnsafePath(name, reason, hint="this commit must not be checked out; look with `git fsck`")
        at = end + 1 + hash_bytes
        entries[name] = Entry(_MODES[mode], content[end + 1 : at].hex())
    return entries


def tree_content(entries: Tree) -> bytes:
    """The bytes of a tree object. Git sorts a directory as if its name ended with a slash."""
    lines = [
        (name.encode() + (b"/" if entry.mode == DIRECTORY else b""), name.encode(), entry)
        for name, entry in entries.items()
    ]
    lines.sort(key=lambda line: line[0])
    return b"".join(b"%o %s\0%s" % (entry.mode, name, bytes.fromhex(entry.hash)) for _, name, entry in lines)


def find(read: ReadTree, tree: str, parts: list[str]) -> Entry | None:
    """The entry at a path, or `None`. Links are not followed."""
    entry: Entry | None = Entry(DIRECTORY, tree)
    for part in parts:
        if entry is None or entry.mode != DIRECTORY:
            return None
        entry = read(entry.hash).get(part)
    return entry


def walk(read: ReadTree, tree: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
    """Every entry that is not a directory, with its path."""
    for name, entry in read(tree).items():
        if entry.mode == DIRECTORY:
            yield from walk(read, entry.hash, f"{prefix}{name}/")
        else:
            yield prefix + name, entry


def compare(read: ReadTree, before: str | None, after: str | None, prefix: str = "") -> Iterator[Change]:
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
                yield Change(path, was, now)


def edit(
    read: ReadTree, write: Callable[[Tree], str], tree: str | None, changes: Mapping[str, Entry | None]
) -> str | None:
    """The tree with entries set or removed by path; `None` when nothing is left. Paths must be checked before."""
    entries = dict(read(tree)) if tree else {}
    below: dict[str, dict[str, Entry | None]] = {}
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
            entries[name] = Entry(DIRECTORY, edited)
        elif subtree(entries.get(name)):
            del entries[name]
    return write(entries) if entries else None


def subtree(entry: Entry | None) -> str | None:
    """The hash of a directory, `None` for anything else."""
    return entry.hash if entry is not None and entry.mode == DIRECTORY else None


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
