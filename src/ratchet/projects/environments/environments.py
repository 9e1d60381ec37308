"""The environments of one project, by commit: made when they are needed first, and shared by all that fit the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.config.protocol_settings import Projects
from ratchet.environments import Busy, find, find_or_make, forget
from ratchet.projects.environments.build import Tell, build
from ratchet.projects.environments.environment import Environment
from ratchet.projects.environments.failure import SetupFailed
from ratchet.projects.environments.recipe import Recipe, recipe_of
from ratchet.workspaces import Repository


def _unheard(_: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Environments:
    """`facts` are the project's: they have the set-up. `tell` is told each command that is run, `hear` its output."""

    home: Path
    repository: Repository
    facts: Mapping[str, Any]
    settings: Projects
    tell: Tell = field(default=_unheard, compare=False)
    hear: Tell = field(default=_unheard, compare=False)

    def recipe(self, commit: str) -> Recipe | None:
        """What makes the environment for a commit; nothing for a project that needs none."""
        return recipe_of(self.repository, commit, self.facts)

    def find(self, commit: str) -> Environment | None:
        """The environment for a commit, if there is one already."""
        recipe = self.recipe(commit)
        found = None if recipe is None else find(self._link(recipe))
        return None if found is None else Environment.load(found)

    def forget(self, commit: str) -> None:
        """Have the environment for a commit made again when it is next needed."""
        recipe = self.recipe(commit)
        if recipe is not None:
            forget(self._link(recipe))

    async def of(self, commit: str) -> Environment | None:
        """The environment for a commit, made now if there is none; nothing for a project that needs none.

        Raises `SetupFailed` with what the command that failed has printed.
        """
        recipe = await asyncio.to_thread(self.recipe, commit)
        if recipe is None:
            return None

        async def make(directory: Path) -> None:
            seconds = self.settings.setup_seconds
            told = {"tell": self.tell, "hear": self.hear}
            await build(directory, recipe, self.repository, commit, seconds=seconds, **told)

        try:
            directory = await find_or_make(
                self._link(recipe),
                make,
                seconds=self.settings.setup_seconds,
                keep_days=self.settings.environment_days,
            )
        except Busy as busy:
            raise SetupFailed(
                ["ratchet", "project", "setup"],
                "waits",
                str(busy),
                hint="wait for it, or raise projects.setup_seconds",
            ) from busy
        except OSError as error:
            raise SetupFailed(
                ["ratchet", "project", "setup"],
                "cannot write",
                str(error),
                hint="free some space and check the rights of Ratchet's home, then try again",
            ) from error
        return Environment.load(directory)

    def _link(self, recipe: Recipe) -> Path:
        return self.home.resolve() / "environments" / recipe.key
