"""A forge that is asked and waited for, so that a test is plain."""

from __future__ import annotations

import asyncio
from typing import Any

from ratchet.forges import Forge, ForgeCheck, PullRequest


class Asking:
    def __init__(self, forge: Forge) -> None:
        self.forge = forge

    def find(self, branch: str) -> PullRequest | None:
        return asyncio.run(self.forge.find_pull_request(branch))

    def open(self, branch: str = "0007-login", **more: Any) -> PullRequest:
        return asyncio.run(self._open(branch, **more))

    def open_twice_at_once(self, branch: str = "0007-login") -> list[PullRequest]:
        async def both() -> list[PullRequest]:
            return list(await asyncio.gather(self._open(branch), self._open(branch)))

        return asyncio.run(both())

    def update(self, number: int, **words: str) -> PullRequest:
        return asyncio.run(self.forge.update_pull_request(number, **words))

    def mark_ready(self, number: int) -> PullRequest:
        return asyncio.run(self.forge.mark_ready(number))

    def checks(self, commit: str) -> tuple[ForgeCheck, ...]:
        return asyncio.run(self.forge.checks(commit))

    async def _open(self, branch: str, **more: Any) -> PullRequest:
        wanted = {"base": "main", "title": "Login", "body": "words", **more}
        return await self.forge.open_pull_request(branch=branch, **wanted)
