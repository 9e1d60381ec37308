"""The jobs of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.agents.architect import KIND

if TYPE_CHECKING:
    from ratchet.runtime import JobContext, Kinds


def add_kinds(kinds: Kinds) -> None:
    kinds.add(KIND, _change)


async def _change(job: JobContext) -> object:
    # Every process knows the kind; only the one that does the work needs what it is made of.
    from ratchet.agents.changing import change_agent

    return await change_agent(job)
