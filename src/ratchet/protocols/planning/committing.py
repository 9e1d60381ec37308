"""The commit of a plan. Whoever makes it, and however often, it is the same one."""

from __future__ import annotations

from ratchet.protocols.naming import require_number
from ratchet.protocols.planning.branching import Begun
from ratchet.protocols.planning.plan import Plan
from ratchet.protocols.planning.work import Work
from ratchet.workspaces import Identity


def commit_plan(work: Work, begun: Begun, plan: Plan, *, author: Identity | None, at: int) -> str:
    """Commit the files of the plan, and nothing else, on top of where it began. Moves no ref."""
    name = work.protocol.name
    number = require_number(name)
    return work.repository.commit_files(
        {f"{work.folder}/{file}": text.encode() for file, text in plan.files().items()},
        parent=begun.ground,
        message=f"feat(protocol): add plan for {name} [protocol-{number:04d}/00]",
        author=author,
        at=at,
    )
