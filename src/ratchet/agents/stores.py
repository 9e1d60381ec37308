"""Where the state of an agent lies: one store for all versions that can work with its form, and which one is live.

`states/COMMIT` is a store, named by the version that began it, and `state.path` in a version's directory leads to its
own. One store is live. A version that wants another form has a store of its own: when the address comes to it, writers
wait, the state is migrated, and the store before is closed. The transaction that closes it is what counts in a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from ratchet.agentkit import AgentKitError, StateMissing, StateStore
from ratchet.agentkit.files import held, read_whole, replace_whole
from ratchet.agents.checks.losses import compare_states
from ratchet.agents.contract import MIGRATE, SCHEMA, SHARED, AgentDirectory
from ratchet.agents.state import CannotCarry, carried_state, check_fits, same
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import decoded
from ratchet.workspaces.directories import remove_tree

_LIVE = "live"
_LOCK = ".lock"
# A server that keeps the lock of its state for longer is not waited for.
_PATIENCE_SECONDS = 30.0
_MOST_BYTES = 128 * 1024 * 1024
_MOST_HOPS = 1000
# Changes that are counted for people; more are "or more".
_COUNTED = 1000
_T = TypeVar("_T")
State = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """What becomes of the state of `store` when a version with a store of its own takes over for the first time.

    `base` and `staged` are the state as an engine was given it and as it left it, if it changed it. With `unchanged`
    the state is taken as it is, without a migration.
    """

    store: str
    parent: str
    base: State | None = None
    staged: State | None = None
    may_lose: bool = False
    unchanged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The state that a version would continue with: that which all share, or one of its own, as it was left."""

    shared: bool
    migrated: bool = False
    left_at: datetime | None = None
    later: int = 0

    @property
    def sentence(self) -> str:
        if self.shared:
            return "it works on the same state, and nothing of it changes"
        if self.migrated:
            return "the state is brought into its form when its servers take over, and nothing of it stays behind"
        at = "" if self.left_at is None else f" on {self.left_at:%Y-%m-%d %H:%M:%S} UTC"
        if not self.later:
            return f"its state has another form, and nothing was changed since it was left{at}"
        many = {1: "1 change", _COUNTED: f"{_COUNTED} changes or more"}.get(
            self.later, f"{self.later} changes"
        )
        return (
            f"its state has another form, and is as it was left{at}: what was changed since then ({many}) stays with"
            " the version that is current now, and is there again when that one is"
        )


@dataclass(frozen=True, slots=True)
class AgentStates:
    """The stores of one agent."""

    place: AgentDirectory

    def store_of(self, commit: str) -> str | None:
        """The store that a version works on; none, if its state still lies beside its code."""
        directory = self.place.version(commit)
        where = StateStore(directory).place
        return None if where == directory else where.name

    @property
    def live(self) -> str | None:
        """The store of the version that the address led to last. Who died while it moved is seen through."""
        content = read_whole(self.place.states / _LIVE, 200)
        store = None if content is None else decoded(content).strip()
        for _ in range(_MOST_HOPS):
            if store is None:
                return None
            with contextlib.suppress(StateMissing):
                if (moved := self._store(store).moved) is not None:
                    store = moved
                    continue
            return store
        return store

    def differ(self, commit: str) -> bool:
        """Whether a version works on another store than the live one."""
        return self.store_of(commit) not in (None, self.live)

    def begin(self, directory: Path, commit: str, state: State, by: str) -> None:
        """Give the version that is made in `directory` a store of its own, which it begins with `state`."""
        store = self.place.states / commit
        # Left by a process that died before the version was there.
        remove_tree(store)
        store.mkdir(parents=True)
        self.lead(directory, commit)
        StateStore(directory).begin(state, by=by)

    def lead(self, directory: Path, store: str) -> None:
        """Have the version in `directory` work on a store."""
        replace_whole(directory / SHARED, f"../states/{store}\n".encode())

    def plan(self, store: str, succession: Succession | None) -> None:
        """Note what becomes of the state when the version that began `store` takes over."""
        path = self.place.states / f"{store}.json"
        if succession is None:
            path.unlink(missing_ok=True)
        else:
            replace_whole(path, json.dumps(asdict(succession), ensure_ascii=False).encode())

    def adopt(self, commit: str, current: str | None) -> None:
        """Bring a state that lies beside the code of a version to where all versions share it; once, whoever dies.

        That of the `current` version is the agent's, if it has none yet. A version in the form of the live state works
        on that: what it had is in the files that are left where they were.
        """
        if not self._is_alone(commit):
            return
        self.place.states.mkdir(exist_ok=True)
        with held(self.place.states / _LOCK, None):
            live = self.live
            if live is None:
                live = current if current is not None and self._is_there(current) else commit
                self._take_over(live)
                self.make_live(live)
            if not self._is_alone(commit):
                return
            if self._have_one_form(commit, live):
                self.lead(self.place.version(commit), live)
                return
            self._take_over(commit)
            with self._store(commit).handed_over(live):
                pass

    def resumed(self, commit: str, current: str | None) -> Resumed:
        """What the address would find as the state if it came to a version now."""
        current = current or commit
        stores = [StateStore(self.place.version(each)) for each in (commit, current)]
        if stores[0].place == stores[1].place or (
            self._is_alone(commit) and self._have_one_form(commit, current)
        ):
            return Resumed(shared=True)
        planned = self._planned(commit)
        if planned is not None and not planned.unchanged:
            return Resumed(shared=False, migrated=True)
        own, live = stores
        left_at = own.moved_at or max((change.at for change in own.history(limit=1)), default=None)
        later = [change for change in live.history(_COUNTED) if left_at is None or change.at > left_at]
        return Resumed(shared=False, left_at=left_at, later=len(later))

    def carry(self, commit: str, current: str) -> None:
        """Have a version take the present state as it is when the address comes to it.

        Raises `AgentKitError` if its schema refuses that state already, with nothing changed but its own store.
        """
        own, live = self.store_of(commit), self.store_of(current)
        if own == live and own is not None:
            return
        present = StateStore(self.place.version(current)).read()
        StateStore(self.place.version(commit), _PATIENCE_SECONDS).replace(present, by="rollback")
        if own is not None and live is not None:
            self.plan(own, Succession(store=live, parent=current, unchanged=True))

    async def settle(self, commit: str, settings: Agents) -> str | None:
        """Make the store of a version the live one, and close the one that was; the store that was left, if any.

        Writers of that wait meanwhile, and are refused then. Raises `CannotCarry`, `AgentKitError` or `OSError` with
        nothing changed.
        """
        own, live = await asyncio.to_thread(lambda: (self.store_of(commit), self.live))
        if own is None or own == live:
            if own is not None:
                await asyncio.to_thread(self._finish, own)
            return None
        if live is None:
            await asyncio.to_thread(self.make_live, own)
            return None
        mine = StateStore(self.place.version(commit), _PATIENCE_SECONDS)
        left = StateStore(self.place.states / live, _PATIENCE_SECONDS)
        async with _apart(left.handed_over(own)) as present:
            state = await self._succeeding(own, live, present, settings)
            await asyncio.to_thread(_open, mine, state, f"ratchet, from {live[:12]}")
        await asyncio.to_thread(self._finish, own)
        return live

    async def _succeeding(self, own: str, live: str, present: State, settings: Agents) -> State | None:
        """What becomes of the present state in the form of a store; None if that resumes its own.

        The version that began the store has the migration, and one before it that was never current may have another.
        """
        if own == live:
            return present
        succession = await asyncio.to_thread(self._planned, own)
        if succession is None:
            return None
        before = await self._succeeding(succession.store, live, present, settings)
        directory = self.place.version(own)
        if before is None:
            return None
        if succession.unchanged:
            await check_fits(before, directory, "the present state", "roll back without the state")
            return before
        base = before if succession.base is None else succession.base
        staged = base if succession.staged is None else succession.staged
        parent = self.place.version(succession.parent)
        carried = await carried_state(
            directory, settings, base=base, staged=staged, live=before, parent=parent
        )
        if not succession.may_lose:
            check_losses(before, carried, edited=not same(base, staged))
        return carried

    def _planned(self, store: str) -> Succession | None:
        content = read_whole(self.place.states / f"{store}.json", _MOST_BYTES)
        return None if content is None else Succession(**json.loads(content))

    def _finish(self, store: str) -> None:
        """Note that a store is live: what was planned for that moment is done."""
        if read_whole(self.place.states / _LIVE, 200) != f"{store}\n".encode():
            self.make_live(store)
        self.plan(store, None)

    def make_live(self, store: str) -> None:
        """Note which store is live, without a word to any other."""
        self.place.states.mkdir(exist_ok=True)
        replace_whole(self.place.states / _LIVE, f"{store}\n".encode())

    def _store(self, store: str) -> StateStore:
        return StateStore(self.place.states / store, _PATIENCE_SECONDS)

    def _is_there(self, commit: str) -> bool:
        return self.place.version(commit).is_dir()

    def _is_alone(self, commit: str) -> bool:
        return self._is_there(commit) and not (self.place.version(commit) / SHARED).exists()

    def _take_over(self, commit: str) -> None:
        if not self._is_alone(commit):
            return
        new, store = self.place.states / f"{commit}.new", self.place.states / commit
        remove_tree(new)
        if not store.is_dir():
            new.mkdir()
            StateStore(self.place.version(commit), _PATIENCE_SECONDS).copy_to(new)
            new.rename(store)
        self.lead(self.place.version(commit), commit)

    def _have_one_form(self, commit: str, other: str) -> bool:
        return all(
            _content(self.place.version(commit) / name) == _content(self.place.version(other) / name)
            for name in (SCHEMA, MIGRATE)
        )


def check_losses(live: State, carried: State, *, edited: bool) -> None:
    """Raise `CannotCarry` if the state of this moment loses something that the one which was checked did not."""
    problem = compare_states(live, carried, edited=edited).problem
    if problem is not None:
        raise CannotCarry(f"the state as it is now {problem}", hint="keep every value of the state")


def _open(store: StateStore, state: State | None, by: str) -> None:
    """Let a store be written again, with that state if one is given."""
    if state is not None:
        store.replace(state, by=by)
    if store.moved is not None:
        with store.handed_over(None):
            pass


def _content(path: Path) -> bytes | None:
    try:
        return read_whole(path, _MOST_BYTES)
    except AgentKitError:
        return None


@asynccontextmanager
async def _apart(block: AbstractContextManager[_T]) -> AsyncIterator[_T]:
    """Enter and leave a block in one thread of its own, to which the lock of a state and its transaction belong."""
    loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, "state")
    try:
        entering = loop.run_in_executor(thread, block.__enter__)
        try:
            value = await asyncio.shield(entering)
        except asyncio.CancelledError as error:
            thread.submit(_leave, block, error)
            raise
        try:
            yield value
        except BaseException as error:
            await loop.run_in_executor(thread, _leave, block, error)
            raise
        await loop.run_in_executor(thread, block.__exit__, None, None, None)
    finally:
        thread.shutdown(wait=False)


def _leave(block: AbstractContextManager[Any], error: BaseException) -> None:
    with contextlib.suppress(type(error)):
        block.__exit__(type(error), error, error.__traceback__)
