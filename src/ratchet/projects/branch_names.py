"""Names of branches, checked before any git sees them."""

from __future__ import annotations

from ratchet.kernel import Misuse
from ratchet.workspaces.refs import check_name

# A file of this name with `.lock` behind it must be possible, here and on the remote.
_LONGEST = 200
_QUOTES = "\"'`"


def check_branch(name: str) -> str:
    """The name itself. Raises `Misuse` for what git refuses, and for what a shell or a page could stumble over."""
    if not _is_plain(name):
        raise Misuse(
            f"{name[:_LONGEST]!r} cannot be the name of a branch",
            hint="use letters, digits, dots, dashes and slashes, such as feature/login",
        )
    return name


def is_branch(name: str) -> bool:
    return _is_plain(name)


def _is_plain(name: str) -> bool:
    if not name.isprintable() or len(name.encode(errors="replace")) > _LONGEST:
        return False
    if name.startswith("-") or name in ("HEAD", "@") or any(quote in name for quote in _QUOTES):
        return False
    try:
        check_name(f"refs/heads/{name}")
    except Misuse:
        return False
    return True
