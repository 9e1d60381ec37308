"""What a version still writes into its state after another has taken its place, brought over to the other one.

A new version begins with the state that the old one had at a certain moment, the cut, which lies in its directory. The
old one goes on until its callers have left it. What it changed since the cut is merged into the new state: once when
the address is moved, and again when the old version has ended. As long as the cut lies there, something may be owed;
so a host that dies in between leaves it to the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.agentkit import AgentKitError, StateStore
from ratchet.agentkit.files import read_whole, replace_whole
from ratchet.agentkit.values import MOST_BYTES, canonical
from ratchet.agents.carrying import CannotCarry, check_fits
from ratchet.agents.contract import CUT
from ratchet.agents.merging import merge_preferring, same
from ratchet.agents.migrating import migrate
from ratchet.config.agent_settings import Agents
from ratchet.kernel import RatchetError

_COMMIT = re.compile(r"[0-9a-f]{7,64}", re.ASCII)
_LOOK_BACK = 200
# A server that keeps the lock of its state for longer is not waited for.
_PATIENCE_SECONDS = 10.0
_MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class Cut:
    """The version that another took its state from, and that state."""

    old: str
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Carried:
    """What became of the late changes: places where the new state had its own change, or why none could be made."""

    changed: bool = False
    left_out: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Succession:
    """`new` began with the state of `old`, as the cut in it tells; both are directories of versions."""

    old: Path
    new: Path
    settings: Agents

    async def carry(self) -> Carried:
        """Bring over what the old version changed since the cut, and make the cut now."""
        try:
            return await self._carry()
        except (RatchetError, AgentKitError, OSError) as error:
            return Carried(problem=str(error))

    def settle(self) -> None:
        """Nothing is owed any more."""
        with contextlib.suppress(OSError):
            (self.new / CUT).unlink(missing_ok=True)

    async def _carry(self) -> Carried:
        # States may be large, and the event loop has calls to serve.
        cut = await asyncio.to_thread(read_cut, self.new)
        present = await asyncio.to_thread(StateStore(self.old).read)
        if cut is None or cut.old != self.old.name or await asyncio.to_thread(same, cut.state, present):
            return Carried()
        before, after = [
            await migrate(self.new, state, self.settings, parent=self.old) for state in (cut.state, present)
        ]
        digest = hashlib.sha256(canonical(present)).hexdigest()
        carried = await self._merged(before, after, f"host, from {self.old.name[:12]} {digest[:12]}")
        await asyncio.to_thread(self._make_cut, present)
        return carried

    async def _merged(self, before: dict[str, Any], after: dict[str, Any], by: str) -> Carried:
        store = StateStore(self.new, _PATIENCE_SECONDS)
        # Done already by a host that died before it could make the cut.
        if any(change.by == by for change in await asyncio.to_thread(store.history, _LOOK_BACK)):
            return Carried()
        for _ in range(_MOST_TRIES):
            seen = await asyncio.to_thread(store.read)
            merged, left_out = await asyncio.to_thread(merge_preferring, before, seen, after)
            # Before anything is written, and not in this process: a schema is the work of an engine.
            await check_fits(merged, self.new, "the state with what the older version changed", "")
            if await asyncio.to_thread(_replace, store, seen, merged, by):
                return Carried(merged != seen, left_out)
        raise CannotCarry("the new version changes its state too often")

    def _make_cut(self, state: dict[str, Any]) -> None:
        content = json.dumps({"from": self.old.name, "state": state}, ensure_ascii=False)
        replace_whole(self.new / CUT, content.encode())


def read_cut(directory: Path) -> Cut | None:
    """The cut that lies in a version's directory, if any. An agent can write there, so it may hold anything."""
    with contextlib.suppress(AgentKitError, OSError, ValueError, RecursionError):
        found = json.loads(read_whole(directory / CUT, 2 * MOST_BYTES) or b"null")
        if isinstance(found, dict) and isinstance(found.get("state"), dict):
            old = found.get("from")
            if isinstance(old, str) and _COMMIT.fullmatch(old):
                return Cut(old, found["state"])
    return None


def _replace(store: StateStore, seen: dict[str, Any], merged: dict[str, Any], by: str) -> bool:
    """Write the merged state if the one it was made from is still the present one."""
    with store.edit(by=by) as live:
        if not same(live, seen):
            return False
        live.clear()
        live.update(merged)
        return True
