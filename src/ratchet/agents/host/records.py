"""What the host reads from the ledger and writes to it. A ledger that is away for a while is waited for."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ratchet.agents.gateway import Unavailable
from ratchet.agents.versions import find_version
from ratchet.kernel import LedgerUnavailable, NotFound, StateChanged
from ratchet.ledger import Ledger, Transaction
from ratchet.ledger import events as event_log
from ratchet.ledger.agents import (
    AgentRow,
    AgentStatus,
    AgentVersion,
    get_agent,
    get_version,
    last_good,
    list_agents,
    move_current,
    quarantine_version,
)
from ratchet.ledger.production import TrafficStatus, open_split
from ratchet.observe.logs import logger

ACTOR = "agents-host"
_log = logger(__name__)
_PAGE = 100
_RETRY_SECONDS = 1.0
# What happened while the ledger was away for long is in the log only.
_MOST_WAITING = 1000
_LAST_SECONDS = 3.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HostedAgent:
    """An agent that can be called, and the version that its address is to lead to.

    While its traffic is split, `percent` of the new sessions go to `candidate`.
    """

    agent: AgentRow
    current: AgentVersion
    candidate: AgentVersion | None = None
    percent: int = 0


@dataclass(frozen=True, slots=True)
class _Happened:
    type: str
    message: str
    data: dict[str, Any]


class Records:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: deque[_Happened] = deque(maxlen=_MOST_WAITING)
        self._wake = asyncio.Event()
        # One writer at a time takes what waits, or it would be written twice: a cancelled task leaves its thread.
        self._writing = threading.Lock()

    async def everything(self) -> tuple[list[HostedAgent], int]:
        """All agents that can be called, the ones changed last first, and the number of the event up to which."""
        return await self._patiently(self._everything)

    async def row(self, name: str) -> HostedAgent | None:
        """The agent as it is now; `None` if it cannot be called (any more)."""
        return await self._patiently(lambda: self._row(name))

    async def look(self, name: str) -> HostedAgent:
        """The same for a caller who cannot wait. Raises `NotFound`, `Unavailable` and `LedgerUnavailable`."""

        def look() -> HostedAgent:
            with self._ledger.read() as tx:
                agent = get_agent(tx, name)
                row = _row_of(tx, agent)
            if row is None:
                raise Unavailable(
                    f"the agent {name} is {agent.status}",
                    hint=f"`ratchet agent show {name}` shows its progress",
                )
            return row

        return await asyncio.to_thread(look)

    async def find(self, agent: AgentRow, text: str) -> AgentVersion:
        """The version that a caller names. Raises what `find_version` does, and `LedgerUnavailable`."""

        def find() -> AgentVersion:
            with self._ledger.read() as tx:
                return find_version(tx, agent, text)

        return await asyncio.to_thread(find)

    async def give_up(self, agent: AgentRow, commit: str, reason: str) -> None:
        """Quarantine a version; if the address leads to it, let it lead to the last good one instead."""
        while True:
            try:
                return await self._patiently(lambda: self._give_up(agent.name, agent.id, commit, reason))
            except StateChanged:
                # The address was moved at this very moment. Look again: it may not lead here any more.
                continue

    def tell(self, kind: str, agent: str, commit: str, **data: Any) -> None:
        """Record that something happened to a version, soon."""
        message = f"{agent} {commit[:12]} {kind}"
        self._waiting.append(_Happened(f"agent.{kind}", message, {"agent": agent, "commit": commit, **data}))
        self._wake.set()

    async def write_events(self) -> None:
        """Write what is reported, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._patiently(self._write_waiting)

    async def write_last(self) -> None:
        """Write what is left at the end, unless the ledger is away."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await asyncio.to_thread(self._write_waiting)
        except (LedgerUnavailable, TimeoutError) as error:
            _log.warning("the end of the agents' servers cannot be recorded", error=str(error))

    async def _patiently(self, call: Callable[[], _T]) -> _T:
        while True:
            try:
                return await asyncio.to_thread(call)
            except LedgerUnavailable as error:
                _log.warning("the ledger does not answer; trying again", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    def _everything(self) -> tuple[list[HostedAgent], int]:
        with self._ledger.read() as tx:
            agents: list[AgentRow] = []
            while page := list_agents(tx, after=agents[-1].name if agents else "", limit=_PAGE):
                agents += page
            rows = [row for agent in agents if (row := _row_of(tx, agent)) is not None]
            rows.sort(key=lambda each: each.agent.updated_at, reverse=True)
            return rows, event_log.last_id(tx.connection)

    def _row(self, name: str) -> HostedAgent | None:
        with self._ledger.read() as tx:
            try:
                return _row_of(tx, get_agent(tx, name))
            except NotFound:
                return None

    def _give_up(self, name: str, agent_id: int, commit: str, reason: str) -> None:
        with self._ledger.write(actor=ACTOR) as tx:
            try:
                agent = get_agent(tx, name)
            except NotFound:
                return
            if agent.id != agent_id:
                return
            quarantine_version(tx, agent, commit, reason)
            good = last_good(tx, agent.id, other_than=commit)
            if agent.current == commit and good is not None:
                move_current(tx, agent, good.commit, expected=commit, why="fell_back", reason=reason)

    def _write_waiting(self) -> None:
        with self._writing:
            waiting = list(self._waiting)
            if not waiting:
                return
            with self._ledger.write(actor=ACTOR) as tx:
                for each in waiting:
                    tx.event(each.type, message=each.message, data=each.data)
            # What came meanwhile was added on the right.
            for _ in waiting:
                self._waiting.popleft()


def _row_of(tx: Transaction, agent: AgentRow) -> HostedAgent | None:
    if agent.status is not AgentStatus.READY or agent.current is None:
        return None
    current, split = get_version(tx, agent.id, agent.current), open_split(tx, agent.id)
    if split is None or split.status is not TrafficStatus.RUNNING or split.against != current.commit:
        return HostedAgent(agent, current)
    return HostedAgent(agent, current, get_version(tx, agent.id, split.candidate), split.percent)
