"""The jobs of projects. Every process knows the kinds; only the one that does the work needs what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.runtime import JobContext, Kinds


SETUP = "project_setup"


def add_kinds(kinds: Kinds) -> None:
    kinds.add(SETUP, _set_up)


async def _set_up(job: JobContext) -> object:
    from ratchet.projects.onboarding import set_up

    return await set_up(job)
