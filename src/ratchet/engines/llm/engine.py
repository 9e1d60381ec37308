"""The `llm` engine: what it can do, whether it is ready, and a session for each request."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence

from ratchet.config.engine_settings import Llm, Prices
from ratchet.engines.endpoint import HiddenKeys, ProbedEndpoint, probe
from ratchet.engines.engine import (
    Capabilities,
    EventKind,
    Failure,
    Fault,
    Readiness,
    Request,
    Session,
    SessionFailed,
    Transcript,
    check_schema,
)
from ratchet.engines.llm.call import Asking, CallAccount, candidate_price
from ratchet.engines.llm.choice import ModelCandidate, candidates
from ratchet.engines.llm.connection import http_client, load_libraries
from ratchet.engines.llm.exchange import LlmConversation, LlmConversations, ModelExchange, ModelReply
from ratchet.engines.llm.fault import CallFault
from ratchet.engines.llm.tools import SessionTools, ToolSurface, mcp_is_installed, prefixed, tools_of
from ratchet.engines.registry import EngineContext
from ratchet.kernel import Misuse

# As if this process were a server of that name.
_OWN_TOOLS = "ratchet"


class LlmSession:
    """Used once."""

    def __init__(
        self,
        engine: str,
        request: Request,
        candidates: Sequence[ModelCandidate],
        settings: Llm,
        environment: Mapping[str, str],
    ) -> None:
        self._engine = engine
        self._request = request
        self._candidates = candidates
        self._settings = settings
        self._environment = environment
        self._secrets = HiddenKeys(
            environment.get(each.key_variable or "", "").strip() for each in candidates
        )
        self._transcript = Transcript(request)
        self._account = CallAccount(request.limits, settings.prices, self._transcript)
        allowed = request.limits.wall_seconds
        self._seconds = (
            request.deadline_seconds if allowed is None else min(request.deadline_seconds, allowed)
        )
        self._until = math.inf
        self._asking: Asking | None = None
        self._toolbox: SessionTools | None = None

    async def run(self, conversations: LlmConversations) -> Session:
        """What the request wants, or `SessionFailed` with what there was until then."""
        resume = self._request.resume
        await load_libraries(self._candidates)
        try:
            earlier = conversations.load(resume) if resume else LlmConversation()
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

    async def _within_deadline(self, earlier: LlmConversation) -> tuple[ModelReply, LlmConversation]:
        self._until = time.monotonic() + self._seconds
        try:
            async with asyncio.timeout(self._seconds) as clock:
                return await self._converse(earlier)
        except TimeoutError:
            if not clock.expired():
                raise
            raise self._out_of_time() from None

    async def _converse(self, earlier: LlmConversation) -> tuple[ModelReply, LlmConversation]:
        first, *others = self._candidates
        self._transcript.say(EventKind.STARTED, first.name, {"fallbacks": [each.name for each in others]})
        self._account.check_prices(self._candidates)
        surface = ToolSurface(self._request.workspace, self._environment.get("PATH", ""), self._seconds)
        async with (
            http_client(self._settings.call_seconds) as http,
            tools_of(self._request.mcp_servers, surface) as foreign,
        ):
            own = [prefixed(tool, _OWN_TOOLS) for tool in self._request.tools]
            self._toolbox = SessionTools([*own, *foreign], self._request.guard, self._transcript)
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
            exchange = ModelExchange(
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

    def _kept(self, conversation: LlmConversation, conversations: LlmConversations) -> str | None:
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

    def _session(self, answer: ModelReply | None = None, resume: str | None = None) -> Session:
        asked = self._candidates[0] if self._asking is None else self._asking.current
        used = {
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
            data={"calls": self._account.calls, **{name: value for name, value in used.items() if value}},
        )


async def readiness(
    candidates: Sequence[ModelCandidate], environment: Mapping[str, str], prices: Mapping[str, Prices]
) -> Readiness:
    """Ready when one of the models is; the others are named, each with what is the matter."""
    looks = await asyncio.gather(*(_look(each, environment) for each in candidates))
    detail = "; ".join(look.detail for look in looks)
    unpriced = next((each.model for each in candidates if candidate_price(each, prices) is None), None)
    if ready := [look for look in looks if look.ready]:
        return Readiness(True, detail, ready[0].fix, unpriced=unpriced, unproven=ready[0].unproven)
    return Readiness(False, detail, looks[0].fix, looks[0].failure)


async def _look(candidate: ModelCandidate, environment: Mapping[str, str]) -> Readiness:
    variable = candidate.key_variable
    try:
        key = candidate.key_in(environment)
    except Fault as fault:
        return Readiness(False, f"{candidate.name}: {fault}", fault.hint, fault.failure)
    if candidate.needs_key and not key:
        return Readiness(False, f"{candidate.name}: {variable} is not set", f"export {variable}=…")
    kind = candidate.endpoint.kind
    url = f"{candidate.url}/v1" if kind == "anthropic" else candidate.url
    return await probe(
        ProbedEndpoint(
            candidate.name,
            url,
            key,
            candidate.model,
            candidate.names,
            speaks=kind,
            asks="messages" if kind == "anthropic" else "chat/completions",
        )
    )


def open_llm(surroundings: EngineContext, option: str) -> LlmEngine:
    """`option` names a model or a role, see `choice`; nothing is `llm.default`. Raises `Misuse`."""
    if option:
        candidates(option, surroundings.settings.llm, surroundings.environment)
    return LlmEngine(surroundings, option or None)


class LlmEngine:
    """Answers, and nothing else: it sees no workspace and edits no files."""

    name = "llm"

    def __init__(self, surroundings: EngineContext, choice: str | None) -> None:
        self._settings = surroundings.settings.llm
        self._environment = surroundings.environment
        self._choice = choice
        self._conversations = LlmConversations(
            surroundings.home / "sessions" / self.name, self._settings.resume_days
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            structured_output=True,
            mcp_tools=mcp_is_installed(),
            resumable=True,
            reports_usage=True,
            own_tools=True,
        )

    async def propose(self, request: Request) -> Session:
        """See `Engine.propose`. `request.model` is read like the option that the engine was opened with."""
        if not request.prompt.strip():
            raise Misuse("the prompt is empty", hint="say what the model is to answer")
        if request.mcp_servers and not self.capabilities.mcp_tools:
            raise Misuse("MCP tools need the package mcp", hint="install it: pip install mcp")
        asked = () if request.output_schema is None else (request.output_schema,)
        for schema in (*asked, *(tool.input_schema for tool in request.tools)):
            try:
                check_schema(schema)
            except ValueError as error:
                raise Misuse(str(error)) from None
        chosen = candidates(request.model or self._choice, self._settings, self._environment)
        held = LlmSession(self.name, request, chosen, self._settings, self._environment)
        return await held.run(self._conversations)

    async def check(self) -> Readiness:
        return await readiness(
            candidates(self._choice, self._settings, self._environment),
            self._environment,
            self._settings.prices,
        )
