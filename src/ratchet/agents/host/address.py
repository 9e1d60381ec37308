"""One agent's stable address: the version that it leads to, those that are being left, and those asked for by name.

The versions of an agent share one state. Where a new one wants it in another form, new calls wait, those under way get
a moment to end, and the state is migrated while its writers wait; only then the address moves.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ratchet.agentkit import AgentKitError, StateBusy
from ratchet.agents.contract import CALL_SECONDS, AgentDirectory, Role
from ratchet.agents.gateway import SessionOver, Unavailable
from ratchet.agents.gateway.request import ProxyRequest
from ratchet.agents.host.records import HostedAgent, Records
from ratchet.agents.host.supervisor import ChangeSignal, Tasks
from ratchet.agents.host.version import EnteredCall, HostedVersion
from ratchet.agents.servers import Launch
from ratchet.agents.state import CannotCarry
from ratchet.agents.stores import AgentStates
from ratchet.agents.versions import CURRENT
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import NotFound
from ratchet.ledger.agents import AgentVersion, VersionStatus
from ratchet.observe.logs import logger

_log = logger(__name__)
_COMMIT_DIGITS = 40
# How long calls may take to end before the state is brought into another form.
_QUIET_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class HostSurroundings:
    """What the addresses of one host share."""

    settings: Agents
    records: Records
    tasks: Tasks
    launch: Callable[[str, str, Path], Launch]
    moved: Callable[[str], None]
    """Is told the name of each agent whose address has moved."""


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A version that is drained, and the one that took its place."""

    task: asyncio.Task[bool]
    successor: HostedVersion


class HostedAddress:
    """Follows where the ledger says that the address shall lead, one step after the other.

    Everything here happens in one event loop. What must not be seen half done is done without an `await` in between:
    a call chooses a version and is counted there, the address moves, a version that is not used begins to stop.
    """

    def __init__(self, row: HostedAgent, place: AgentDirectory, surroundings: HostSurroundings) -> None:
        self.name = row.agent.name
        self._agent = row.agent
        self._place = place
        self._states = AgentStates(place)
        # While the state is brought into the form of another version.
        self._is_switching = False
        self._surroundings = surroundings
        self._settings = surroundings.settings
        self._records = surroundings.records
        self._current: HostedVersion | None = None
        self._awaited: HostedVersion | None = None
        # While the traffic is split: the other version, and its share of the new sessions.
        self._candidate: HostedVersion | None = None
        self._percent = 0
        self._versions: dict[str, HostedVersion] = {}
        self._leaving: dict[str, _Leaving] = {}
        self._change = ChangeSignal()
        self._stale = asyncio.Event()
        self._gone = False

    def look_again(self) -> None:
        """The ledger has something new, or one of the versions has."""
        self._stale.set()

    async def tend(self) -> None:
        """Keep the address consistent with the ledger until the agent is gone."""
        hearing = self._surroundings.tasks.start(self._hear)
        try:
            while True:
                self._stale.clear()
                given_up = await self._give_up_faulty()
                row = await self._records.row(self.name)
                if row is None or row.agent.id != self._agent.id:
                    break
                self._agent = row.agent
                await self._follow(row.current)
                await self._try_out(row.candidate, row.percent)
                for version in given_up:
                    version.quarantine = version.fault
                self._change.tell()
                await self._stale.wait()
            await self._close()
        finally:
            hearing.cancel()

    async def enter(
        self, role: Role, version: str | None, session: str | None, request: ProxyRequest | None
    ) -> EnteredCall:
        """See `ratchet.agents.gateway.Directory.enter`."""
        commit = None if version is None or version in CURRENT else await self._commit(version)
        if session is not None:
            while (
                self._is_switching
                and commit is None
                and request is not None
                and request.head.method == b"POST"
            ):
                await self._change.wait()
            return self._resume(role, commit, session, request)
        if (entry := self._enter(role, commit, request)) is not None:
            return entry
        try:
            async with asyncio.timeout(self._settings.start_seconds):
                while entry is None:
                    await self._change.wait()
                    entry = self._enter(role, commit, request)
        except TimeoutError:
            raise Unavailable(
                f"the {role} of {self.name} did not come up within {self._settings.start_seconds:g} s",
                hint=f"`ratchet agent logs {self.name}` shows what it printed",
            ) from None
        return entry

    async def bring_up(self) -> None:
        """Start the current version, and wait until it has come up or will not."""
        while self._current is None and not self._gone:
            await self._change.wait()
        if self._current is not None:
            self._current.start()
        while self._current is not None and self._current.is_running and not self._current.is_up:
            await self._change.wait()

    def sweep(self) -> None:
        """End what was not used for long."""
        now = time.monotonic()
        for version in list(self._versions.values()):
            version.occupancy.forget_silent(self._settings.session_idle_seconds)
            idle = now - version.occupancy.used >= self._settings.idle_seconds
            kept = version.commit in self._leaving or version in (self._awaited, self._candidate)
            if version.is_up and version.occupancy.is_free and idle and not kept:
                version.stop("idle")
            elif not (kept or version is self._current or version.is_running or version.has_crashed):
                del self._versions[version.commit]

    def status(self) -> dict[str, Any]:
        versions = [version.status() for version in self._versions.values()]
        for each in versions:
            if each["commit"] in self._leaving:
                each["state"] = "draining"
        current = None if self._current is None else self._current.commit
        return {"agent": self.name, "current": current, "versions": versions}

    def _enter(self, role: Role, commit: str | None, request: ProxyRequest | None) -> EnteredCall | None:
        """Enter the version that is to answer, if it does; else see to it that it will."""
        if self._gone:
            raise NotFound("agent", self.name)
        version = self._chosen(role) if commit is None else self._version(commit)
        if version is None or (self._is_switching and commit is None):
            return None
        port = version.port(role)
        if port is not None:
            version.check_fence(role, request)
            return EnteredCall(version, role, port, None, request, commit is None)
        # A current version that was just given up is about to be replaced, unless the ledger has no other one.
        fault = version.quarantine or (None if version is self._current else version.fault)
        if fault is not None:
            raise Unavailable(
                f"version {version.commit[:12]} of {self.name} is quarantined: {fault}",
                hint="call another version, or give feedback that fixes it",
            )
        version.start()
        return None

    async def _try_out(self, row: AgentVersion | None, percent: int) -> None:
        """Let a share of the new sessions go to a version, or to none."""
        if row is not None:
            await self._adopt(row.commit)
        before, self._candidate = self._candidate, None if row is None else self._known(row)
        self._percent = percent
        if self._candidate is not None:
            self._candidate.is_left = False
        if before not in (None, self._candidate, self._current):
            # Those who were with it go on with the current version.
            before.is_left = before.occupancy.is_watched = True
            self._surroundings.moved(self.name)

    def _chosen(self, role: Role) -> HostedVersion | None:
        """Where a call without a session goes. One that begins a session decides for all of that session."""
        candidate = self._candidate
        if candidate is None or candidate is self._current or random.random() * 100 >= self._percent:
            return self._current
        if candidate.port(role) is not None:
            return candidate
        # No caller waits for a version that is only tried.
        candidate.start()
        return self._current

    def _resume(
        self, role: Role, commit: str | None, session: str, request: ProxyRequest | None
    ) -> EnteredCall:
        for version in self._versions.values():
            if version.occupancy.knows(role, session) and commit in (None, version.commit):
                port = version.port(role)
                if port is not None:
                    version.check_fence(role, request)
                    return EnteredCall(version, role, port, session, request, commit is None)
        raise SessionOver(f"this session with {self.name} is over", hint="begin a new one")

    async def _commit(self, text: str) -> str:
        """The commit that a caller names. Raises what `find_version` does."""
        known = self._versions.get(text) if len(text) >= _COMMIT_DIGITS else None
        if known is not None and known.can_start:
            return known.commit
        version = self._known(await self._records.find(self._agent, text))
        await self._adopt(version.commit)
        return version.commit

    def _version(self, commit: str) -> HostedVersion:
        if commit not in self._versions:
            launch = self._surroundings.launch(self.name, commit, self._place.version(commit))
            self._versions[commit] = HostedVersion(
                launch, self._settings, self._surroundings.tasks, self._change, self._tell
            )
        return self._versions[commit]

    def _known(self, row: AgentVersion) -> HostedVersion:
        """The version as the ledger has it now: in quarantine, or released from it."""
        version = self._version(row.commit)
        version.offers = row.offers or ()
        if row.status is VersionStatus.QUARANTINED:
            version.quarantine = row.reason or "it crashed too often"
        elif version.quarantine is not None:
            version.release()
        return version

    def _tell(self, kind: str, commit: str, **data: Any) -> None:
        self._records.tell(kind, self.name, commit, **data)

    async def _hear(self) -> None:
        """Look again when a version is given up, or is what the address waits for."""
        while True:
            if self._has_news:
                self.look_again()
            await self._change.wait()

    @property
    def _has_news(self) -> bool:
        if any(version.fault and not version.quarantine for version in self._versions.values()):
            return True
        if self._awaited is None or self._current is None:
            return False
        return self._awaited.is_up or not self._awaited.is_running or not self._current.serves

    async def _give_up_faulty(self) -> list[HostedVersion]:
        faulty = [each for each in self._versions.values() if each.fault and not each.quarantine]
        for version in faulty:
            assert version.fault is not None
            await self._records.give_up(self._agent, version.commit, version.fault)
        return faulty

    async def _follow(self, wanted: AgentVersion) -> None:
        """Bring the address closer to where it shall lead. While the old version answers, it waits for the new one."""
        target, old = self._known(wanted), self._current
        superseded, self._awaited = self._awaited, None
        if superseded not in (None, target, old) and superseded.occupancy.is_free:
            superseded.stop("superseded")
        await self._adopt(target.commit)
        if old is None:
            if not target.can_start or await self._settled(target):
                self._lead_to(target)
        elif target is not old:
            await self._take_back(target)
            target.start()
            if not (target.is_up or not old.serves):
                self._awaited = target
            elif not target.can_start or await self._settled(target, old):
                self._lead_to(target)

    def _lead_to(self, target: HostedVersion) -> None:
        old, self._current = self._current, target
        target.is_left = False
        target.occupancy.touch()
        if old is not None:
            old.is_left = old.occupancy.is_watched = True
            self._surroundings.moved(self.name)
            task = self._surroundings.tasks.start(partial(self._drain, old, target))
            self._leaving[old.commit] = _Leaving(task, target)

    async def _take_back(self, version: HostedVersion) -> None:
        """A version that was being left is wanted again."""
        leaving = self._leaving.pop(version.commit, None)
        version.is_left = version.occupancy.is_watched = False
        if leaving is not None:
            leaving.task.cancel()
            await asyncio.wait({leaving.task})

    async def _drain(self, old: HostedVersion, successor: HostedVersion) -> None:
        """Let those who are with a version finish, and stop it."""
        try:
            async with asyncio.timeout(self._settings.drain_seconds):
                while not old.occupancy.is_free:
                    await self._change.wait()
        except TimeoutError:
            _log.warning("callers stayed too long with an old version", agent=self.name, commit=old.commit)
            # Who could not follow begins a new session; a call under way ends before.
            await self._quiet(old, CALL_SECONDS)
        old.stop("drained")
        await old.stopped()
        self._leaving.pop(old.commit, None)
        self._tell("drained", old.commit, successor=successor.commit)

    async def _adopt(self, commit: str) -> None:
        """See to it that a version works on the state of the agent, before its servers begin."""
        try:
            await asyncio.to_thread(self._states.adopt, commit, self._agent.current)
        except (AgentKitError, OSError) as error:
            _log.warning("the state of a version cannot be used", agent=self.name, error=str(error))

    async def _settled(self, target: HostedVersion, old: HostedVersion | None = None) -> bool:
        """Whether the state is that of `target` now. If it cannot be, that is given up, and nothing has changed."""
        try:
            if old is not None and await asyncio.to_thread(self._states.differ, target.commit):
                self._is_switching = True
                await self._quiet(old, _QUIET_SECONDS)
            left = await self._states.settle(target.commit, self._settings)
        except StateBusy:
            # A server that holds the lock may let go of it: it is tried again.
            raise
        except (CannotCarry, AgentKitError) as error:
            reason = f"the state cannot be taken over: {error}"
            _log.warning(reason, agent=self.name, commit=target.commit)
            await self._records.give_up(self._agent, target.commit, reason)
            target.quarantine = reason
            target.stop("quarantined")
            self.look_again()
            return False
        finally:
            self._is_switching = False
            self._change.tell()
        if left is not None:
            self._tell("state", target.commit, **{"from": left})
        return True

    async def _quiet(self, version: HostedVersion, seconds: float) -> None:
        """Wait until no call is under way, but not for longer."""
        version.occupancy.is_watched = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while version.occupancy.calls:
                    await self._change.wait()

    async def _close(self) -> None:
        """The agent is gone: end all that is here."""
        self._gone = True
        for leaving in self._leaving.values():
            leaving.task.cancel()
        for version in self._versions.values():
            version.stop("deleted")
        self._change.tell()
        for version in list(self._versions.values()):
            await version.stopped()
