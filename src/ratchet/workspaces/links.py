"""Symbolic links must stay inside the tree, also by way of other links."""

from __future__ import annotations

from collections.abc import Callable

from ratchet.workspaces.errors import UnsafePath
from ratchet.workspaces.names import unsafe_name
from ratchet.workspaces.trees import LINK, Entry, ReadTree, find

_HOPS = 40


def check_link(read: ReadTree, target_of: Callable[[Entry], str], tree: str, path: str) -> None:
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
