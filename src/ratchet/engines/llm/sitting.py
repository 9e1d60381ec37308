"""One session from its first word to what came of it, within its deadline."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence

from ratchet.config.llm_settings import Llm
from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.llm.account import Account
from ratchet.engines.llm.asking import Asking
from ratchet.engines.llm.choice import Candidate
from ratchet.engines.llm.connection import http_client, load_libraries
from ratchet.engines.llm.conversation import Conversation, Conversations
from ratchet.engines.llm.exchange import Answer, Exchange
from ratchet.engines.llm.fault import CallFault
from ratchet.engines.llm.mcp_tools import Surface, tools_of
from ratchet.engines.llm.tools import Toolbox, prefixed
from ratchet.engines.secrets import Secrets
from ratchet.engines.session import EventKind, Request, Session
from ratchet.engines.transcript import Transcript

# As if this process were a server of that name.
_OWN_TOOLS = "ratchet"


class Sitting:
    """Used once."""

    def __init__(
        self,
        engine: str,
        request: Request,
        candidates: Sequence[Candidate],
        settings: Llm,
        environment: Mapping[str, str],
    ) -> None:
        self._engine = engine
        self._request = request
        self._candidates = candidates
        self._settings = settings
        self._environment = environment
        self._secrets = Secrets(environment.get(each.key_variable or "", "").strip() for each in candidates)
        self._transcript = Transcript(request)
        self._account = Account(request.limits, settings.prices, self._transcript)
        allowed = request.limits.wall_seconds
        self._seconds = (
            request.deadline_seconds if allowed is None else min(request.deadline_seconds, allowed)
        )
        self._until = math.inf
        self._asking: Asking | None = None
        self._toolbox: Toolbox | None = None

    async def run(self, conversations: Conversations) -> Session:
        """What the request wants, or `SessionFailed` with what there was until then."""
        resume = self._request.resume
        await load_libraries(self._candidates)
        try:
            earlier = conversations.load(resume) if resume else Conversation()
            answer, conversation = await self._within_deadline(earlier)
        except CallFault as fault:
            raise SessionFailed(
                fault.failure,
                self._secrets.hide(str(fault)),
                session=self._session(),
                hint=fault.hint,
                retry_after=fault.retry_after,
                worked=fault.worked if self._asking is None else self._asking.worked,
            ) from None
        return self._session(answer, self._kept(conversation, conversations))

    async def _within_deadline(self, earlier: Conversation) -> tuple[Answer, Conversation]:
        self._until = time.monotonic() + self._seconds
        try:
            async with asyncio.timeout(self._seconds) as clock:
                return await self._converse(earlier)
        except TimeoutError:
            if not clock.expired():
                raise
            raise self._out_of_time() from None

    async def _converse(self, earlier: Conversation) -> tuple[Answer, Conversation]:
        first, *others = self._candidates
        self._transcript.say(EventKind.STARTED, first.name, {"fallbacks": [each.name for each in others]})
        self._account.check_prices(self._candidates)
        surface = Surface(self._request.workspace, self._environment.get("PATH", ""), self._seconds)
        async with (
            http_client(self._settings.call_seconds) as http,
            tools_of(self._request.mcp_servers, surface) as foreign,
        ):
            own = [prefixed(tool, _OWN_TOOLS) for tool in self._request.tools]
            self._toolbox = Toolbox([*own, *foreign], self._request.guard, self._transcript)
            self._asking = Asking(
                self._candidates,
                self._environment,
                self._settings,
                http=http,
                account=self._account,
                transcript=self._transcript,
                secrets=self._secrets,
                left=lambda: self._until - time.monotonic(),
            )
            exchange = Exchange(
                self._request,
                self._settings,
                asking=self._asking,
                account=self._account,
                toolbox=self._toolbox,
                transcript=self._transcript,
                secrets=self._secrets,
                earlier=earlier,
            )
            return await exchange.run(), exchange.conversation

    def _kept(self, conversation: Conversation, conversations: Conversations) -> str | None:
        """The name to resume it by; an answer that was paid for is not lost because the disk is full."""
        try:
            return conversations.keep(conversation, self._secrets.hide)
        except OSError as error:
            self._transcript.say(EventKind.NOTE, f"this session cannot be resumed: {error.strerror}")
            return None

    def _out_of_time(self) -> CallFault:
        if self._seconds < self._request.deadline_seconds:
            return CallFault(
                Failure.BUDGET,
                f"the session used up the {self._seconds:g} seconds of wall time that it was given",
                hint="raise the budget, or ask for less in one session",
                worked=False,
            )
        return CallFault(
            Failure.TIMEOUT,
            f"the session did not end within {self._seconds:g} seconds",
            hint="raise engines.deadline_seconds, or ask for less in one session",
            worked=False,
        )

    def _session(self, answer: Answer | None = None, resume: str | None = None) -> Session:
        asked = self._candidates[0] if self._asking is None else self._asking.current
        told = {
            "price_unknown": self._account.unpriced,
            "denied": self._toolbox.denied if self._toolbox else [],
        }
        return Session(
            self._engine,
            model=asked.name,
            text=answer.text if answer else "",
            output=answer.output if answer else None,
            usage=self._account.usage,
            resume=resume,
            transcript=self._transcript.content,
            data={"calls": self._account.calls, **{name: value for name, value in told.items() if value}},
        )
