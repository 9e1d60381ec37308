"""What the Architect does when it is called over MCP: the same functions as every other face."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ratchet.agents import actions, architect, views
from ratchet.agents.actions import Moved
from ratchet.agents.addresses import AgentTokens, Bearer
from ratchet.agents.architect import AgentRequest
from ratchet.agents.completion import ask_llm
from ratchet.agents.contract import Severity
from ratchet.agents.learning import leave_remark
from ratchet.agents.versions import find_version
from ratchet.config import Loaded
from ratchet.engines.preflight import check_for_worker
from ratchet.kernel import Conflict, Misuse
from ratchet.ledger.agents import get_agent
from ratchet.ledger.ledger import run_at_rest
from ratchet.ledger.production import CallerRemark
from ratchet.operations import record
from ratchet.runtime import Runtime

# Longer than any token that is given out, or that a person would choose.
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class ArchitectCaller:
    """A version of an agent; without one, the holder of the API token."""

    version: Bearer | None = None

    @property
    def actor(self) -> str:
        """As the ledger calls it."""
        return "mcp" if self.version is None else f"agent {self.version.agent}"


class Callers:
    """Tells who it is that brings a token."""

    def __init__(self, tokens: AgentTokens, api_token: str) -> None:
        self._tokens = tokens
        self._api_token = api_token.encode()

    def of(self, authorization: bytes) -> ArchitectCaller | None:
        """The caller with this value of the header; none, if it is not known."""
        scheme, _, token = authorization.partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token or len(token) > _LONGEST:
            return None
        # An empty API token admits no caller.
        if self._api_token and hmac.compare_digest(token, self._api_token):
            return ArchitectCaller()
        version = self._tokens.read(token.decode("latin-1"))
        return None if version is None else ArchitectCaller(version)


Given = Mapping[str, Any]
Reply = dict[str, Any]

# What a program may have in hand at once, so that one that runs wild neither starves the others nor spends at will.
_ASKED_AT_ONCE = 4
_ASKS_WAITING = 32
# A model reads it, and many clients take no message of more than a megabyte.
_LONGEST_DIFF = 60_000


class ArchitectService:
    """Each method takes the caller and the arguments of a tool, which fit its schema, and returns what is shown."""

    def __init__(self, runtime: Runtime, loaded: Loaded) -> None:
        self._runtime = runtime
        self._loaded = loaded
        self._asks: Counter[str] = Counter()
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_ASKED_AT_ONCE)
        )

    async def create_agent(self, caller: ArchitectCaller, given: Given) -> Reply:
        wanted = AgentRequest(**{key: value for key, value in given.items() if key != "wait_seconds"})
        check = partial(architect.check_creation, self._runtime, wanted)
        await asyncio.to_thread(check_for_worker, self._runtime, check)
        run_id = await asyncio.to_thread(architect.create_agent, self._runtime, wanted, actor=caller.actor)
        return await self._outcome(run_id, given)

    async def send_feedback(self, caller: ArchitectCaller, given: Given) -> Reply:
        named = {"engine": given.get("engine"), "model": given.get("model")}
        check = partial(architect.check_feedback, self._runtime, given["agent"], given["message"], **named)
        await asyncio.to_thread(check_for_worker, self._runtime, check)
        run_id = await asyncio.to_thread(
            architect.send_feedback,
            self._runtime,
            given["agent"],
            given["message"],
            severity=Severity(given.get("severity", Severity.NORMAL)),
            version=given.get("version"),
            about=given.get("about", ()),
            engine=given.get("engine"),
            model=given.get("model"),
            simulated=given.get("simulated", False),
            actor=caller.actor,
        )
        return await self._outcome(run_id, given)

    async def tell_of_itself(self, caller: ArchitectCaller, given: Given) -> Reply:
        """Feedback of an agent's own Tuner, about the version that it belongs to."""
        remark = await asyncio.to_thread(self._tell_of_itself, caller, given)
        return {
            "feedback_id": remark.id,
            "status": "waiting" if remark.run_id is None else "taken",
            "count": remark.count,
            "run_id": remark.run_id,
        }

    async def ask_llm(self, caller: ArchitectCaller, given: Given) -> Reply:
        version = _version(caller)
        if self._asks[version.agent] >= _ASKS_WAITING:
            raise Conflict(
                f"the agent {version.agent} waits for {_ASKS_WAITING} answers already",
                hint="ask again when some of them have come",
            )
        self._asks[version.agent] += 1
        try:
            async with self._turns[version.agent]:
                return await ask_llm(self._runtime, agent=version.agent, commit=version.commit, **given)
        finally:
            self._asks[version.agent] -= 1

    async def list_agents(self, _caller: ArchitectCaller, given: Given) -> Reply:
        def read() -> Reply:
            with self._runtime.ledger.read() as tx:
                return {"agents": list(map(record, views.agents(tx, **given)))}

        return await asyncio.to_thread(read)

    async def get_agent(self, _caller: ArchitectCaller, given: Given) -> Reply:
        def read() -> Reply:
            with self._runtime.ledger.read() as tx:
                home, settings = self._loaded.home, self._loaded.settings.agents
                shown = views.one_agent(tx, home, settings, given["name"])
                latest = views.versions(tx, given["name"], limit=given.get("versions", 10))
            return {**record(shown), "versions": list(map(record, latest))}

        return await asyncio.to_thread(read)

    async def compare_versions(self, _caller: ArchitectCaller, given: Given) -> Reply:
        def read() -> Reply:
            with self._runtime.ledger.read() as tx:
                compared = views.find_compared(tx, **given)
            shown = views.comparison(self._loaded.home, compared)
            cut = shown.is_cut or len(shown.diff) > _LONGEST_DIFF
            return {**record(shown), "diff": shown.diff[:_LONGEST_DIFF], "is_cut": cut}

        return await asyncio.to_thread(read)

    async def promote(self, caller: ArchitectCaller, given: Given) -> Reply:
        moved = await asyncio.to_thread(actions.promote, self._runtime, **given, actor=caller.actor)
        return _moved(moved)

    async def rollback(self, caller: ArchitectCaller, given: Given) -> Reply:
        moved = await asyncio.to_thread(actions.rollback, self._runtime, **given, actor=caller.actor)
        return _moved(moved)

    def _tell_of_itself(self, caller: ArchitectCaller, given: Given) -> CallerRemark:
        version = _version(caller)
        with self._runtime.ledger.read() as tx:
            agent = get_agent(tx, version.agent)
            own = find_version(tx, agent, version.commit)
            named = own if "version" not in given else find_version(tx, agent, given["version"])
        if named.commit != own.commit or given.get("agent", agent.name) != agent.name:
            raise Misuse(
                f"this token is for the version {own.version} of {agent.name} alone",
                hint="leave out agent and version: both are known from the token",
            )
        return leave_remark(
            self._runtime,
            agent.name,
            own.commit,
            given["message"],
            severity=Severity(given.get("severity", Severity.NORMAL)),
            actor=caller.actor,
        )

    async def _outcome(self, run_id: int, given: Given) -> Reply:
        run = await run_at_rest(self._runtime.ledger, run_id, given.get("wait_seconds", 0))
        return {
            "run_id": run.id,
            "status": str(run.status),
            "reason": run.reason,
            "result": run.result,
            "simulated": run.simulated or run.used_recording,
        }


def _version(caller: ArchitectCaller) -> Bearer:
    assert caller.version is not None, "this tool is for agents"
    return caller.version


def _moved(moved: Moved) -> Reply:
    return {**record(views.AgentAnswer.of(moved.agent, moved.version)), "before": moved.before}
