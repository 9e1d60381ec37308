"""The jobs of research. Every process knows the kind; only the one that does the work needs what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratchet.runtime import JobContext, Kinds

KIND = "research.run"


def add_kinds(kinds: Kinds) -> None:
    kinds.add(KIND, _run)


async def _run(job: JobContext) -> Any:
    from ratchet.research.supervisor import research_run

    return await research_run(job)
