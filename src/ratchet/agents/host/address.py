"""One agent's stable address: the version that it leads to, those that are being left, and those asked for by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ratchet.agents.contract import AgentDirectory, Role
from ratchet.agents.gateway import SessionOver, Unavailable
from ratchet.agents.host.records import HostedAgent, Records
from ratchet.agents.host.supervisor import ChangeSignal, Tasks
from ratchet.agents.host.version import EnteredCall, HostedVersion
from ratchet.agents.servers import Launch
from ratchet.agents.state import Carried, Succession, read_cut
from ratchet.agents.versions import CURRENT
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import NotFound
from ratchet.ledger.agents import AgentVersion, VersionStatus
from ratchet.observe.logs import logger

_log = logger(__name__)
_COMMIT_DIGITS = 40


@dataclass(frozen=True, slots=True)
class HostSurroundings:
    """What the addresses of one host share. `carries` says that late changes of states are this host's business."""

    settings: Agents
    records: Records
    tasks: Tasks
    launch: Callable[[str, str, Path], Launch]
    carries: bool


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A version that is drained, and the one that took its place."""

    task: asyncio.Task[bool]
    successor: HostedVersion
    succession: Succession | None


class HostedAddress:
    """Follows where the ledger says that the address shall lead, one step after the other.

    Everything here happens in one event loop. What must not be seen half done is done without an `await` in between:
    a call chooses a version and is counted there, the address moves, a version that is not used begins to stop.
    """

    def __init__(self, row: HostedAgent, place: AgentDirectory, surroundings: HostSurroundings) -> None:
        self.name = row.agent.name
        self._agent = row.agent
        self._place = place
        self._surroundings = surroundings
        self._settings = surroundings.settings
        self._records = surroundings.records
        self._current: HostedVersion | None = None
        self._awaited: HostedVersion | None = None
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
                for version in given_up:
                    version.quarantine = version.fault
                self._change.tell()
                await self._stale.wait()
            await self._close()
        finally:
            hearing.cancel()

    async def enter(self, role: Role, version: str | None, session: str | None) -> EnteredCall:
        """See `ratchet.agents.gateway.Directory.enter`."""
        commit = None if version is None or version in CURRENT else await self._commit(version)
        if session is not None:
            return self._resume(role, commit, session)
        if (entry := self._enter(role, commit)) is not None:
            return entry
        try:
            async with asyncio.timeout(self._settings.start_seconds):
                while entry is None:
                    await self._change.wait()
                    entry = self._enter(role, commit)
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
            kept = version.commit in self._leaving or version is self._awaited
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

    def _enter(self, role: Role, commit: str | None) -> EnteredCall | None:
        """Enter the version that is to answer, if it does; else see to it that it will."""
        if self._gone:
            raise NotFound("agent", self.name)
        version = self._current if commit is None else self._version(commit)
        if version is None:
            return None
        port = version.port(role)
        if port is not None:
            version.occupancy.enter(role, None)
            return EnteredCall(version.occupancy, role, port, None)
        # A current version that was just given up is about to be replaced, unless the ledger has no other one.
        fault = version.quarantine or (None if version is self._current else version.fault)
        if fault is not None:
            raise Unavailable(
                f"version {version.commit[:12]} of {self.name} is quarantined: {fault}",
                hint="call another version, or give feedback that fixes it",
            )
        version.start()
        return None

    def _resume(self, role: Role, commit: str | None, session: str) -> EnteredCall:
        for version in self._versions.values():
            if version.occupancy.knows(role, session) and commit in (None, version.commit):
                port = version.port(role)
                if port is not None:
                    version.occupancy.enter(role, session)
                    return EnteredCall(version.occupancy, role, port, session)
        raise SessionOver(f"this session with {self.name} is over", hint="begin a new one")

    async def _commit(self, text: str) -> str:
        """The commit that a caller names. Raises what `find_version` does."""
        known = self._versions.get(text) if len(text) >= _COMMIT_DIGITS else None
        if known is not None and known.can_start:
            return known.commit
        return self._known(await self._records.find(self._agent, text)).commit

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
        if old is None:
            await self._finish_succession(target)
            self._lead_to(target, None)
        elif target is not old:
            await self._take_back(target)
            target.start()
            if target.is_up or not old.serves:
                succession = await self._succession(target.directory, old)
                await self._carry(succession)
                self._lead_to(target, succession)
            else:
                self._awaited = target

    def _lead_to(self, target: HostedVersion, succession: Succession | None) -> None:
        old, self._current = self._current, target
        target.occupancy.touch()
        if old is not None:
            task = self._surroundings.tasks.start(partial(self._drain, old, target, succession))
            self._leaving[old.commit] = _Leaving(task, target, succession)

    async def _take_back(self, version: HostedVersion) -> None:
        """A version that was being left is wanted again: it keeps its state to itself."""
        leaving = self._leaving.pop(version.commit, None)
        if leaving is not None:
            leaving.task.cancel()
            await asyncio.wait({leaving.task})
            await self._settle(leaving.succession)

    async def _drain(
        self, old: HostedVersion, successor: HostedVersion, succession: Succession | None
    ) -> None:
        """Let those who are with a version finish, stop it, and bring over what it still changed in its state."""
        try:
            async with asyncio.timeout(self._settings.drain_seconds):
                while not old.occupancy.is_free:
                    await self._change.wait()
        except TimeoutError:
            _log.warning("callers stayed too long with an old version", agent=self.name, commit=old.commit)
        old.stop("drained")
        await old.stopped()
        # What an even older version changed last goes through this one.
        older = {each.task for each in self._leaving.values() if each.successor is old}
        if older:
            await asyncio.wait(older)
        await self._carry(succession)
        await self._settle(succession)
        self._leaving.pop(old.commit, None)
        self._tell("drained", old.commit, successor=successor.commit)

    async def _finish_succession(self, version: HostedVersion) -> None:
        """What a host that died has left undone."""
        succession = await self._succession(version.directory)
        await self._carry(succession)
        await self._settle(succession)

    async def _succession(self, new: Path, old: HostedVersion | None = None) -> Succession | None:
        """From whom a version took its state, if something may still be owed; only from `old`, if that is given."""
        cut = await asyncio.to_thread(read_cut, new) if self._surroundings.carries else None
        if cut is None or (old is not None and cut.old != old.commit):
            return None
        return Succession(self._place.version(cut.old), new, self._settings)

    async def _carry(self, succession: Succession | None) -> None:
        carried = Carried() if succession is None else await succession.carry()
        if succession is not None and carried != Carried():
            data = {
                "from": succession.old.name,
                "left_out": list(carried.left_out),
                "problem": carried.problem,
            }
            self._tell("state", succession.new.name, **data)

    async def _settle(self, succession: Succession | None) -> None:
        if succession is not None:
            await asyncio.to_thread(succession.settle)

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
