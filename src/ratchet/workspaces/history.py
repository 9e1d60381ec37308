"""Commits as values."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.workspaces.trees import Change


@dataclass(frozen=True, slots=True)
class Commit:
    """What `Workspace.commit` made.

    Without `changes` the tree was as before: `hash` is then the base itself and nothing was written. `own_commits` are
    those that the session made by itself; they are not part of the history that is kept.
    """

    hash: str
    tree: str
    changes: tuple[Change, ...]
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
    for line in head.decode(errors="replace").splitlines():
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
        message=message.decode(errors="replace"),
    )
