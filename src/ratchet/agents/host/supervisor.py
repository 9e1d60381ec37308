"""Keep one server of a version running: start it, check it, and restart it when it has crashed."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from enum import StrEnum
from typing import NamedTuple

from ratchet.agents.contract import Role
from ratchet.agents.servers import AgentServer, Launch, StartFailed, serving
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import RatchetError
from ratchet.observe.logs import logger


class ChangeSignal:
    """Every waiting task is woken by the next `tell`, and looks at what has become of the thing."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def tell(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        await self._next.wait()


_RETRY_SECONDS = 1.0
Work = Callable[[], Awaitable[None]]


class Tasks:
    """Tasks of one group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start(self, work: Work) -> asyncio.Task[bool]:
        return self._group.create_task(_is_done(work))

    def keep_doing(self, work: Work) -> asyncio.Task[None]:
        """Start again when it fails, until it is done."""
        return self._group.create_task(persistently(work))


async def persistently(work: Work) -> None:
    """Do `work` until it is done or cancelled, however often it goes wrong."""
    while True:
        if await _is_done(work):
            return
        await asyncio.sleep(_RETRY_SECONDS)


async def _is_done(work: Work) -> bool:
    try:
        await work()
    except Exception:  # noqa: BLE001  A mistake of ours: it is logged with its trace, and must not end every agent.
        _log.exception("something went wrong in the host of agents")
        return False
    return True


class Crashes:
    """Crashes count for `crash_seconds`; a server that stays up for so long begins again."""

    def __init__(self, settings: Agents) -> None:
        self._settings = settings
        self._times: deque[float] = deque()

    def add(self) -> None:
        self._times.append(time.monotonic())

    def forget(self) -> None:
        self._times.clear()

    @property
    def count(self) -> int:
        while self._times and self._times[0] <= time.monotonic() - self._settings.crash_seconds:
            self._times.popleft()
        return len(self._times)

    @property
    def too_many(self) -> bool:
        return self.count >= self._settings.crashes

    @property
    def pause(self) -> float:
        return pause_after(self.count, self._settings)


def pause_after(failures: int, settings: Agents) -> float:
    """Seconds until the next try; each failure doubles them."""
    # Doubled often enough, a number has no end; the cap is reached long before.
    return min(settings.restart_seconds * 2.0 ** min(failures - 1, 30), settings.restart_cap_seconds)


# A call that was under way so often when its server ended, and never ended well since, is not let in again.
_STRIKES = 2
_MOST_STRIKES = 1_000


class ToolCall(NamedTuple):
    """Which tool is called, and what it is called with."""

    tool: str
    digest: str


def tool_call(body: bytes) -> ToolCall | None:
    """The call in a message of a client; none, if it is about something else."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict) or message.get("method") != "tools/call":
        return None
    asked = json.dumps([params.get("name"), params.get("arguments")], sort_keys=True)
    return ToolCall(str(params.get("name")), hashlib.sha256(asked.encode()).hexdigest())


class Fence:
    """What ended a server, and is not let in again: a call, or for `crash_seconds` a tool. The others go on.

    A call is blamed when it was under way at two ends and did not end well since; a tool when no other was, as often as
    a version may crash.
    """

    def __init__(self, settings: Agents) -> None:
        self._settings = settings
        self._strikes: dict[str, int] = {}
        self._tools: dict[str, Crashes] = {}

    @property
    def tools(self) -> list[str]:
        """Those that are fenced now."""
        return [tool for tool, crashes in self._tools.items() if crashes.too_many]

    @property
    def is_wary(self) -> bool:
        """Whether any call is held against."""
        return bool(self._strikes)

    def blame(self, calls: Collection[ToolCall]) -> None:
        """A server has ended while these were under way."""
        for call in calls:
            self._strikes[call.digest] = self._strikes.pop(call.digest, 0) + 1
        while len(self._strikes) > _MOST_STRIKES:
            del self._strikes[next(iter(self._strikes))]
        if len(tools := {call.tool for call in calls}) == 1:
            [tool] = tools
            self._tools.setdefault(tool, Crashes(self._settings)).add()

    def clear(self, call: ToolCall) -> None:
        """It ended well."""
        self._strikes.pop(call.digest, None)

    def refusal(self, call: ToolCall) -> str | None:
        """Why a call is not let in."""
        if (times := self._strikes.get(call.digest, 0)) >= _STRIKES:
            return f"this call of {call.tool} ended its server {times} times"
        crashes = self._tools.get(call.tool)
        if crashes is not None and crashes.too_many:
            return f"{call.tool} ended its server {crashes.count} times in {self._settings.crash_seconds:g} s"
        return None

    def forget(self) -> None:
        self._strikes.clear()
        self._tools.clear()


_log = logger(__name__)
# A server that takes longer to list its tools is not well, however seldom it is looked at.
_LOOK_SECONDS = 10.0
_LONGEST_REASON = 2000


class HostedState(StrEnum):
    """Where a server stands."""

    STOPPED = "stopped"
    STARTING = "starting"
    UP = "up"
    BACKING_OFF = "backing off"


class GivenUp(Exception):
    """A version has crashed too often to be started once more."""


class Keeper:
    """One server of a version. `changed` is called at every change, `crashed` with the reason of every crash; it says
    whether a call was to blame, so that this is not held against the version.

    `server` is there exactly while calls can be led to it.
    """

    def __init__(
        self,
        role: Role,
        settings: Agents,
        *,
        changed: Callable[[], None],
        crashed: Callable[[Role, str], bool],
    ) -> None:
        self.role = role
        self.condition = HostedState.STOPPED
        self.since = time.time()
        self.server: AgentServer | None = None
        self.restarts = 0
        self.crashes = Crashes(settings)
        self._settings = settings
        self._changed = changed
        self._crashed = crashed

    async def keep(self, launch: Launch) -> None:
        """Keep it up until cancelled. Raises `GivenUp`."""
        hindrances = 0
        try:
            while True:
                try:
                    reason = await self._serve(launch)
                except StartFailed as error:
                    reason = _reason(error)
                # Not the version's fault: what it needs of this machine or of Ratchet is missing, perhaps not for long.
                # Whatever it is, the other agents must not suffer from it.
                except Exception as error:  # noqa: BLE001
                    hindrances += 1
                    _log.warning(
                        "an agent's server cannot run now",
                        agent=launch.agent,
                        server=self.role,
                        error=str(error),
                        exc_info=not isinstance(error, RatchetError | OSError),
                    )
                    await self._rest(pause_after(hindrances, self._settings))
                    continue
                hindrances = 0
                if self._crashed(self.role, reason):
                    await self._rest(self._settings.restart_seconds)
                    self.restarts += 1
                    continue
                if self.crashes.too_many:
                    raise GivenUp(f"its {self.role} crashed {self.crashes.count} times; lately: {reason}")
                await self._rest(self.crashes.pause)
                self.restarts += 1
        finally:
            self._turn(HostedState.STOPPED)

    async def _serve(self, launch: Launch) -> str:
        """Run it once; why that ended."""
        self._turn(HostedState.STARTING)
        async with serving(launch, self.role, self._settings) as server:
            with self._led_to(server):
                return await self._fault(server)

    async def _fault(self, server: AgentServer) -> str:
        """Look at it until it has ended or is not well."""
        look_seconds = min(_LOOK_SECONDS, max(2.0, self._settings.health_seconds))
        ended = asyncio.create_task(server.ended())
        failures = 0
        try:
            while not (await asyncio.wait({ended}, timeout=self._settings.health_seconds))[0]:
                problem = await server.problem(look_seconds)
                failures = 0 if problem is None else failures + 1
                if failures >= self._settings.health_failures and not ended.done():
                    return f"{failures} looks in a row failed: {problem}"
            return ended.result()
        finally:
            ended.cancel()

    @contextlib.contextmanager
    def _led_to(self, server: AgentServer) -> Iterator[None]:
        self.server = server
        self._turn(HostedState.UP)
        try:
            yield
        finally:
            # Before the server is taken down, which takes a while: no call may reach it meanwhile.
            self.server = None
            self._turn(HostedState.BACKING_OFF)

    async def _rest(self, seconds: float) -> None:
        self._turn(HostedState.BACKING_OFF)
        await asyncio.sleep(seconds)

    def _turn(self, condition: HostedState) -> None:
        self.condition = condition
        self.since = time.time()
        self._changed()


def _reason(error: StartFailed) -> str:
    return f"{error}\n{error.log}".strip()[-_LONGEST_REASON:] if error.log else str(error)
