"""A version of an agent as its host knows it: two servers that run when they are needed, and who uses them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.agents.contract import Role, ToolShape
from ratchet.agents.gateway import Unavailable
from ratchet.agents.gateway.request import ProxyRequest
from ratchet.agents.host.supervisor import (
    ChangeSignal,
    Fence,
    GivenUp,
    HostedState,
    Keeper,
    Tasks,
    ToolCall,
    tool_call,
)
from ratchet.agents.servers import Launch
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import fingerprint

# A session is a few bytes here, and servers give them out as they like.
_MOST_SESSIONS = 10_000
# Calls that a server has left without an answer, and that may have ended it.
_MOST_BROKEN = 64


@dataclass(slots=True)
class ClientSession:
    """What a client began with one server; `used` is when it last called or was answered."""

    role: Role
    used: float


class Occupancy:
    """Calls and sessions of one version. `changed` is called when it becomes free, and while it `is_watched` also when
    no call is under way.

    The stream of news of a session is no call: older clients hold one open for as long as they live, and that alone
    must not keep a version up.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.calls = 0
        self.is_watched = False
        self.used = time.monotonic()
        self._sessions: dict[tuple[Role, str], ClientSession] = {}
        self._changed = changed

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def is_free(self) -> bool:
        return not self.calls and not self._sessions

    def touch(self) -> None:
        self.used = time.monotonic()

    def knows(self, role: Role, session: str) -> bool:
        return (role, session) in self._sessions

    def enter(self, role: Role, session: str | None, *, counts: bool = True) -> None:
        """`counts` says whether it is a call that ends, and not a stream that is open as long as its session."""
        self.touch()
        self.calls += counts
        if session is not None:
            self._sign_of_life(role, session)

    def leave(self, role: Role, session: str | None, *, counts: bool = True) -> None:
        self.touch()
        self.calls -= counts
        if session is not None:
            self._sign_of_life(role, session)
        if self.is_watched and not self.calls:
            self._changed()
        else:
            self._tell_if_free()

    def open(self, role: Role, session: str) -> None:
        if len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda each: self._sessions[each].used)]
        self._sessions[role, session] = ClientSession(role, time.monotonic())

    def close(self, role: Role, session: str) -> None:
        if self._sessions.pop((role, session), None) is not None:
            self._tell_if_free()

    def forget(self, role: Role) -> None:
        """A server has ended, and with it what its sessions were."""
        self._keep({key: each for key, each in self._sessions.items() if each.role is not role})

    def forget_silent(self, seconds: float) -> None:
        since = time.monotonic() - seconds
        self._keep({key: each for key, each in self._sessions.items() if each.used > since})

    def _keep(self, sessions: dict[tuple[Role, str], ClientSession]) -> None:
        if len(sessions) < len(self._sessions):
            self._sessions = sessions
            self._tell_if_free()

    def _sign_of_life(self, role: Role, session: str) -> None:
        known = self._sessions.get((role, session))
        if known is not None:
            known.used = time.monotonic()

    def _tell_if_free(self) -> None:
        if self.is_free:
            self._changed()


Tell = Callable[..., None]
"""`tell("started", commit, …)` records what happened to a version."""


class HostedVersion:
    """`fault` says that it was given up; `quarantine` that the ledger knows, and why. Neither is started again."""

    def __init__(
        self, launch: Launch, settings: Agents, tasks: Tasks, change: ChangeSignal, tell: Tell
    ) -> None:
        self.commit = launch.commit
        self.directory = launch.directory
        self.fault: str | None = None
        self.quarantine: str | None = None
        # Whether the address leads to another version now.
        self.is_left = False
        # What it offers besides tools, as its row has it.
        self.offers: Sequence[Mapping[str, Any]] = ()
        self.occupancy = Occupancy(change.tell)
        self.keepers = {
            role: Keeper(role, settings, changed=self._changed, crashed=self._crashed) for role in Role
        }
        self.fences = {role: Fence(settings) for role in Role}
        # Messages of clients that each server has now, or had when it ended.
        self._under_way: dict[Role, set[ProxyRequest]] = {role: set() for role in Role}
        self._broken: dict[Role, deque[ProxyRequest]] = {role: deque(maxlen=_MOST_BROKEN) for role in Role}
        self._listed: dict[Role, tuple[ToolShape, ...]] = {}
        self._launch = launch
        self._tasks = tasks
        self._change = change
        self._tell = tell
        self._running: asyncio.Task[bool] | None = None
        self._was_up = False
        self._ending: str | None = None
        self._settings = settings

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def is_up(self) -> bool:
        return self._ending is None and all(keeper.server is not None for keeper in self.keepers.values())

    @property
    def serves(self) -> bool:
        """Whether at least one of its servers answers."""
        return self._ending is None and any(keeper.server is not None for keeper in self.keepers.values())

    @property
    def has_crashed(self) -> bool:
        """Whether something is held against it."""
        return self.fault is not None or any(keeper.crashes.count for keeper in self.keepers.values())

    @property
    def can_start(self) -> bool:
        return self.fault is None and self.quarantine is None

    def port(self, role: Role) -> int | None:
        """Where calls for this server go now; `None` while it does not answer."""
        server = self.keepers[role].server
        return None if server is None or self._ending is not None else server.port

    def lists(self, role: Role) -> dict[str, str]:
        """A fingerprint of each list that callers of a server may have read."""
        before = "" if role is Role.RUNNER else "tuner "
        offered = {
            f"{kind}s": [each for each in self.offers if str(each["name"]).startswith(f"{before}{kind} ")]
            for kind in ("resource", "prompt")
        }
        lists = {"tools": self._listed.get(role), **offered}
        return {name: fingerprint("lists 1", each=repr(found)) for name, found in lists.items()}

    def start(self) -> None:
        """Begin to start it, unless it runs already, still stops, or is not to be started."""
        if self._running is None and self.can_start:
            self.occupancy.touch()
            self._running = self._tasks.start(self._run)
            # Not at the end of the task: one that is cancelled at once never begins.
            self._running.add_done_callback(self._ended)

    def stop(self, why: str) -> None:
        """Begin to stop it. From here on no call is led to it; one that comes waits until it can be started again."""
        if self._running is not None and self._ending is None:
            self._ending = why
            self._running.cancel()

    def release(self) -> None:
        """A person wants it in spite of everything: forget what was held against it."""
        self.fault = self.quarantine = None
        for keeper in self.keepers.values():
            keeper.crashes.forget()
        for fence in self.fences.values():
            fence.forget()

    def check_fence(self, role: Role, request: ProxyRequest | None) -> None:
        """Raise `Unavailable` for a call that ended the server before."""
        fence = self.fences[role]
        if not fence.is_wary or request is None or (call := _call(request)) is None:
            return
        if (reason := fence.refusal(call)) is not None:
            raise Unavailable(
                f"this call is fenced off: {reason}",
                hint="call it otherwise, or give feedback that fixes it; the other tools answer",
            )

    def begin(self, role: Role, request: ProxyRequest) -> None:
        """A message of a client is led to a server."""
        self._under_way[role].add(request)

    def end(self, role: Role, request: ProxyRequest, *, is_broken: bool) -> None:
        """It was answered, or the server left it without an answer: then it may have ended by it."""
        self._under_way[role].discard(request)
        fence = self.fences[role]
        if is_broken:
            self._broken[role].append(request)
        elif fence.is_wary and (call := _call(request)) is not None:
            fence.clear(call)

    async def stopped(self) -> None:
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as servers:
                for keeper in self.keepers.values():
                    servers.create_task(keeper.keep(self._launch))
        except* GivenUp as given_up:
            self.fault = str(given_up.exceptions[0])

    def _ended(self, _task: asyncio.Task[bool]) -> None:
        if self._was_up:
            self._tell("stopped", self.commit, why=self._ending or self.fault or "the host ends")
        self._running, self._ending, self._was_up = None, None, False
        self._changed()

    def _changed(self) -> None:
        for role, keeper in self.keepers.items():
            if keeper.server is None:
                self.occupancy.forget(role)
            else:
                self._listed[role] = keeper.server.tools
        if self.is_up and not self._was_up:
            self._was_up = True
            self.occupancy.touch()
            ports = {str(role): self.port(role) for role in self.keepers}
            self._tell("started", self.commit, ports=ports)
        self._change.tell()

    def _crashed(self, role: Role, reason: str) -> bool:
        """Whether calls are to blame, and not the version. One of which every tool is to blame is not sound, though."""
        self._was_up = False
        fence, keeper = self.fences[role], self.keepers[role]
        suspects = self._under_way[role].union(self._broken[role])
        self._broken[role].clear()
        calls = {call for request in suspects if (call := _call(request)) is not None}
        fence.blame(calls)
        names = {tool.name for tool in self._listed.get(role, ())}
        is_blamed = bool(calls) and not (len(names) > 1 and names <= set(fence.tools))
        if not is_blamed:
            keeper.crashes.add()
        self._tell("crashed", self.commit, server=role, reason=reason, crashes=keeper.crashes.count)
        for tool in fence.tools if calls else ():
            self._tell("fenced", self.commit, server=role, tool=tool, seconds=self._settings.crash_seconds)
        return is_blamed

    @property
    def condition(self) -> str:
        """In one word, for people."""
        if not self.can_start:
            return "quarantined"
        conditions = {keeper.condition for keeper in self.keepers.values()}
        order = (HostedState.BACKING_OFF, HostedState.STARTING, HostedState.UP)
        return next((each for each in order if each in conditions), HostedState.STOPPED)

    def status(self) -> dict[str, Any]:
        servers = {
            str(role): {
                "state": str(keeper.condition),
                "port": self.port(role),
                "restarts": keeper.restarts,
                "crashes": keeper.crashes.count,
                "fenced": self.fences[role].tools,
                "since": keeper.since,
            }
            for role, keeper in self.keepers.items()
        }
        return {
            "commit": self.commit,
            "state": str(self.condition),
            "calls": self.occupancy.calls,
            "sessions": self.occupancy.sessions,
            "servers": servers,
        }


def _call(request: ProxyRequest) -> ToolCall | None:
    is_whole = request.complete and request.head.method == b"POST"
    return tool_call(b"".join(request.parts)) if is_whole else None


@dataclass(slots=True)
class EnteredCall:
    """A call that has entered a server; see `ratchet.agents.gateway.Entered`.

    `follows` says that it came to the address of whatever version is current.
    """

    version: HostedVersion
    role: Role
    port: int
    session: str | None
    request: ProxyRequest | None
    follows: bool
    is_broken: bool = False

    def __post_init__(self) -> None:
        self.version.occupancy.enter(self.role, self.session, counts=self._counts)
        if self.request is not None:
            self.version.begin(self.role, self.request)

    @property
    def _counts(self) -> bool:
        return self.session is None or self.request is None or self.request.head.method != b"GET"

    @property
    def commit(self) -> str:
        return self.version.commit

    @property
    def is_left(self) -> bool:
        return self.follows and self.version.is_left

    @property
    def lists(self) -> dict[str, str]:
        return self.version.lists(self.role)

    def broke_off(self) -> None:
        self.is_broken = True

    def leave(self) -> None:
        if self.request is not None:
            self.version.end(self.role, self.request, is_broken=self.is_broken)
        self.version.occupancy.leave(self.role, self.session, counts=self._counts)

    def session_opened(self, session: str) -> None:
        self.version.occupancy.open(self.role, session)

    def session_closed(self, session: str) -> None:
        self.version.occupancy.close(self.role, session)
