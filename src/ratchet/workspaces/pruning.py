"""Removing what dead processes left, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.workspaces.administration import remove_administrations
from ratchet.workspaces.claims import dead_claims
from ratchet.workspaces.git import Git
from ratchet.workspaces.kinds.worktree import BRANCHES
from ratchet.workspaces.loose import remove_unfinished
from ratchet.workspaces.mount import unmount_below
from ratchet.workspaces.refs import Refs

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
