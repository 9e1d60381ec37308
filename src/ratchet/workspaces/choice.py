"""Which kind of workspace suits a tree."""

from __future__ import annotations

from collections.abc import Callable

from ratchet.workspaces.checkout import Kind
from ratchet.workspaces.errors import KindUnavailable

# Writing files costs some 50 µs each, a mount a few milliseconds whatever its size.
LARGE_FILES = 1000


def choose(wanted: Kind | None, files: int, no_overlay: Callable[[], str | None]) -> tuple[Kind, str]:
    """The kind and the reason for it. `no_overlay` tells why this machine has no overlay mounts, asked when it matters.

    Raises `KindUnavailable` for a kind that was asked for and cannot be had.
    """
    if wanted is Kind.OVERLAY and (refusal := no_overlay()) is not None:
        raise KindUnavailable(
            f"overlay workspaces are not possible here: {refusal}", hint="use the kind tree"
        )
    if wanted is not None:
        return wanted, "asked for"
    if files < LARGE_FILES:
        return Kind.TREE, f"{files} files are few"
    refusal = no_overlay()
    if refusal is not None:
        return Kind.TREE, f"{files} files are many, but overlay mounts are not possible here: {refusal}"
    return Kind.OVERLAY, f"{files} files are many"
