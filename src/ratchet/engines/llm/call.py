"""Calls of models: one after the other within the budget, each streamed, with the account of what was used."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ratchet.config.engine_settings import Llm, Prices
from ratchet.engines.endpoint import HiddenKeys
from ratchet.engines.engine import EventKind, Failure, Fault, Transcript
from ratchet.engines.llm.choice import ModelCandidate
from ratchet.engines.llm.connection import Closed, Gate, gate_of, model_at
from ratchet.engines.llm.fault import CallFault, fault_of
from ratchet.engines.providers import how_to_price, no_price, output_tokens_for, price_of, priced
from ratchet.kernel import Limits, Usage

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RequestUsage


class CallAccount:
    """Adds up every call, failed ones included. A limit is looked at before each call and after it."""

    def __init__(self, limits: Limits, prices: Mapping[str, Prices], transcript: Transcript) -> None:
        # Not the trials: what a session makes is judged by others.
        self._limits = replace(limits, trials=None)
        self._prices = prices
        self._transcript = transcript
        self._used = Usage()
        self.calls = 0
        self.unpriced: list[str] = []
        self.unmeasured = 0

    @property
    def usage(self) -> Usage:
        return replace(self._used, wall_ms=self._transcript.wall_ms)

    def check_prices(self, candidates: Iterable[ModelCandidate]) -> None:
        """Refuse to spend from a budget of money what cannot be counted. Raises `CallFault`."""
        for candidate in candidates:
            if self._limits.cost_usd is not None and candidate_price(candidate, self._prices) is None:
                raise CallFault(
                    Failure.MISSING,
                    no_price(candidate.name, self._limits.cost_usd),
                    hint=how_to_price(candidate.model),
                    worked=False,
                )

    def check_before(self) -> None:
        """Raises `CallFault` when nothing is left for another call."""
        self._raise(self._limits.reached_by(self.usage))

    def check_after(self) -> None:
        """Raises `CallFault` when the last call went too far, or cannot be counted."""
        self._raise(self._limits.exceeded_by(self.usage))
        if self.unmeasured and (self._limits.tokens is not None or self._limits.cost_usd is not None):
            raise CallFault(
                Failure.BUDGET,
                "the endpoint does not say what a call used, so the budget cannot be kept",
                hint="use an endpoint that reports usage, or give this session no budget of tokens or money",
            )

    def output_tokens(self, candidate: ModelCandidate) -> int | None:
        """The most tokens out that the limits still allow, if they say anything about it."""
        left = self._limits.less(self.usage)
        most = [] if left.tokens is None else [left.tokens]
        price = candidate_price(candidate, self._prices)
        if left.cost_usd is not None and price is not None:
            bought = output_tokens_for(left.cost_usd * 1_000_000, price)
            most += [] if bought is None else [bought]
        return max(1, min(most)) if most else None

    def charge(self, candidate: ModelCandidate, used: RequestUsage) -> None:
        """Add what one call used, finished or not, and report the sum. What an endpoint cannot mean is unknown."""
        input_tokens, output_tokens = (
            each if 0 <= each <= _MOST_TOKENS else 0 for each in (used.input_tokens, used.output_tokens)
        )
        measured = not used.unmeasured_requests and input_tokens > 0 and output_tokens == used.output_tokens
        call = Usage(
            input_tokens=input_tokens,
            cached_tokens=min(max(0, used.cache_read_tokens), input_tokens),
            output_tokens=output_tokens,
        )
        price = candidate_price(candidate, self._prices, input_tokens)
        # It used something: its cost is unknown then, and not nothing, unless the model is free.
        known = measured or (price is not None and not (price.input or price.output))
        self._used += priced(call, price) if known else replace(call, unpriced_tokens=max(1, call.tokens))
        self.calls += 1
        if not measured:
            self.unmeasured += 1
            self._note(f"{candidate.name} does not say what this call used")
        if price is None and candidate.name not in self.unpriced:
            self.unpriced.append(candidate.name)
            self._note(f"the price of {candidate.name} is unknown, so what its calls cost is unknown too")
        data = {"model": candidate.name, **asdict(self.usage)}
        self._transcript.say(EventKind.USAGE, candidate.name, data)

    def _note(self, text: str) -> None:
        self._transcript.say(EventKind.NOTE, text)

    def _raise(self, over: tuple[str, float, float] | None) -> None:
        if over is not None:
            measure, used, limit = over
            raise CallFault(
                Failure.BUDGET,
                f"the {measure} budget of this session is used up: {used:g} of {limit:g}",
                hint=f"raise the {measure} limit",
                worked=self.calls > 0,
            )


def candidate_price(
    candidate: ModelCandidate, table: Mapping[str, Prices], request_tokens: int = 0
) -> Prices | None:
    """The price of a candidate, in a request of this size. `None` is unknown, which is not the same as nothing."""
    return price_of(
        candidate.model,
        table,
        place=candidate.place,
        url=candidate.url,
        keyless=candidate.key_variable is None,
        request_tokens=request_tokens,
    )


_EVERY_SECONDS = 0.1
# More than any model takes or gives in one call.
_MOST_TOKENS = 10**9


class Speech:
    """The words of one answer. An event that continues in the next one of its kind has `more` in its data."""

    def __init__(self, transcript: Transcript, secrets: HiddenKeys) -> None:
        self._transcript = transcript
        self._secrets = secrets
        self._kind = EventKind.MESSAGE
        self._waiting = ""
        self._told_at = time.monotonic()

    def hear(self, kind: EventKind, piece: str) -> None:
        if kind is not self._kind:
            self.end()
            self._kind = kind
        if self._waiting and time.monotonic() - self._told_at >= _EVERY_SECONDS:
            self._tell_some()
        self._waiting += piece

    def end(self) -> None:
        """Tell the rest."""
        if self._waiting:
            self._transcript.say(self._kind, self._secrets.hide(self._waiting))
            self._waiting = ""

    def _tell_some(self) -> None:
        # A secret may come in two pieces: its beginning waits for the rest.
        ready = self._waiting[: len(self._waiting) - self._secrets.held_back(self._waiting)]
        self._waiting = self._waiting[len(ready) :]
        self._told_at = time.monotonic()
        if ready:
            self._transcript.say(self._kind, self._secrets.hide(ready), {"more": True})


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """What is sent to a model."""

    messages: list[ModelMessage]
    parameters: ModelRequestParameters
    settings: ModelSettings


class ModelCall:
    """Used once. `used` is what the endpoint said so far about its usage, also when the call failed."""

    def __init__(self, candidate: ModelCandidate, model: Model, question: ModelQuestion) -> None:
        self.candidate = candidate
        self._model = model
        self._question = question
        self._stream: StreamedResponse | None = None

    @property
    def began(self) -> bool:
        """Whether an answer began to come."""
        return self._stream is not None

    @property
    def used(self) -> RequestUsage:
        from pydantic_ai.usage import RequestUsage

        return RequestUsage() if self._stream is None else self._stream.usage

    async def answer(self, speech: Speech, seconds: float) -> ModelResponse:
        """The whole answer. Raises `CallFault`; whatever else ends it, the connection is closed."""
        try:
            async with asyncio.timeout(seconds) as clock, contextlib.aclosing(self._events()) as events:
                async for event in events:
                    _tell(event, speech)
        except TimeoutError:
            if not clock.expired():
                raise
            raise CallFault(
                Failure.TIMEOUT,
                f"{self.candidate.name} did not finish its answer in {seconds:g} s",
                hint="raise llm.call_seconds",
            ) from None
        assert self._stream is not None
        return self._checked(self._stream.get())

    async def _events(self) -> AsyncGenerator[ModelResponseStreamEvent, None]:
        """The events of the stream. What the library raises becomes a `CallFault`; what a listener raises does not."""
        from pydantic_ai import UsageExtractionFailedWarning
        from pydantic_ai.direct import model_request_stream

        # What an endpoint does not say is noted in the session.
        warnings.simplefilter("ignore", UsageExtractionFailedWarning)
        question = self._question
        try:
            async with model_request_stream(
                self._model,
                question.messages,
                model_settings=question.settings,
                model_request_parameters=question.parameters,
            ) as self._stream:
                async for event in self._stream:
                    yield event
        except Exception as error:  # noqa: BLE001 - an endpoint can send anything, and so the library raise anything
            # Not chained: the library's own text may show the key.
            raise fault_of(error, self.candidate) from None

    def _checked(self, response: ModelResponse) -> ModelResponse:
        name = self.candidate.name
        match response.finish_reason:
            case "content_filter":
                said = str(
                    (response.provider_details or {}).get("refusal") or response.text or "no reason given"
                )
                raise CallFault(Failure.REFUSED, f"{name} declined to answer: {said[:500]}")
            case "length":
                raise CallFault(
                    Failure.BAD_OUTPUT,
                    f"the answer of {name} was cut at its largest size",
                    hint="raise llm.output_tokens or the budget, or ask for less",
                )
            case "error" | None:
                raise CallFault(Failure.CRASHED, f"{name} broke off its answer", again=True)
        return response


def _tell(event: ModelResponseStreamEvent, speech: Speech) -> None:
    from pydantic_ai import messages as said

    match event:
        case said.PartStartEvent(part=said.TextPart(content=piece)):
            speech.hear(EventKind.MESSAGE, piece)
        case said.PartDeltaEvent(delta=said.TextPartDelta(content_delta=piece)):
            speech.hear(EventKind.MESSAGE, piece)
        case said.PartStartEvent(part=said.ThinkingPart(content=piece)):
            speech.hear(EventKind.REASONING, piece)
        case said.PartDeltaEvent(delta=said.ThinkingPartDelta(content_delta=piece)):
            speech.hear(EventKind.REASONING, piece or "")


# When all models failed: what will pass by itself tells more than what will not.
_HOPE = (
    Failure.RATE_LIMITED,
    Failure.TIMEOUT,
    Failure.CRASHED,
    Failure.REFUSED,
    Failure.NO_ACCESS,
    Failure.MISSING,
)

Ask = Callable[[ModelCandidate, "Model"], ModelQuestion]
"""What a model is to be asked; how depends on what it can do."""


class Asking:
    """The models of one session. One that failed is not asked again in it."""

    def __init__(
        self,
        candidates: Sequence[ModelCandidate],
        environment: Mapping[str, str],
        settings: Llm,
        *,
        http: httpx2.AsyncClient,
        account: CallAccount,
        transcript: Transcript,
        secrets: HiddenKeys,
        left: Callable[[], float],
    ) -> None:
        """`left` tells how many seconds the session still has."""
        self._left_to_try = list(candidates)
        self._environment = environment
        self._settings = settings
        self._http = http
        self._account = account
        self._transcript = transcript
        self._secrets = secrets
        self._left = left
        # False only as long as no model can have done anything.
        self.worked = False

    @property
    def current(self) -> ModelCandidate:
        return self._left_to_try[0]

    async def ask(self, ask: Ask) -> ModelResponse:
        """The answer of the first model that gives one. Raises `CallFault`."""
        faults: list[CallFault] = []
        while True:
            try:
                return await self._ask_one(self.current, ask)
            except CallFault as fault:
                faults.append(fault)
                if not fault.allows_fallback or len(self._left_to_try) == 1:
                    raise _sum(faults) from None
                self._left_to_try.pop(0)
                self._say_retry(f"{fault}; asking {self.current.name} instead", model=self.current.name)

    async def _ask_one(self, candidate: ModelCandidate, ask: Ask) -> ModelResponse:
        model = self._model(candidate)
        for tried in range(1, self._settings.tries + 1):
            self._account.check_before()
            try:
                return await self._call(candidate, model, ask)
            except CallFault as fault:
                pause = self._pause(fault, tried)
                if not fault.again or tried == self._settings.tries or pause > self._left():
                    raise
                self._say_retry(
                    f"{fault}; asking again in {pause:.1f} s",
                    model=candidate.name,
                    seconds=round(pause, 3),
                    reason=self._secrets.hide(str(fault)),
                )
                await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _call(self, candidate: ModelCandidate, model: Model, ask: Ask) -> ModelResponse:
        gate = gate_of(candidate.url, candidate.endpoint)
        try:
            async with gate.passing(min(self._settings.patience_seconds, self._left())):
                response = await self._answer(ModelCall(candidate, model, ask(candidate, model)), gate)
        except Closed as closed:
            raise CallFault(
                Failure.RATE_LIMITED,
                f"{candidate.name} takes no calls: {closed}",
                hint="wait, or name a fallback for the role",
                retry_after=closed.seconds,
                worked=False,
            ) from None
        except CallFault as fault:
            if fault.retry_after:
                gate.close_for(fault.retry_after)
            if fault.failure is Failure.BAD_OUTPUT:
                # An answer that was cut because the budget allowed no more.
                self._account.check_before()
            raise
        self._account.check_after()
        return response

    async def _answer(self, call: ModelCall, gate: Gate) -> ModelResponse:
        """The answer to `call`. Whatever comes of it is written down: what was said, and what was used."""
        speech = Speech(self._transcript, self._secrets)
        worked, self.worked = self.worked, True
        try:
            return await call.answer(speech, self._settings.call_seconds)
        except CallFault as fault:
            self.worked = worked or fault.worked
            raise
        finally:
            if call.began:
                gate.used(call.used.input_tokens + call.used.output_tokens)
                speech.end()
                self._account.charge(call.candidate, call.used)

    def _model(self, candidate: ModelCandidate) -> Model:
        variable = candidate.key_variable
        try:
            key = candidate.key_in(self._environment)
        except Fault as fault:
            raise CallFault(fault.failure, str(fault), hint=fault.hint, worked=False) from None
        if candidate.needs_key and not key:
            raise CallFault(
                Failure.MISSING,
                f"there is no key for {candidate.name}: the environment variable {variable} is not set",
                hint=f"export {variable}=…, or change llm.endpoints.{candidate.place}.key_variable",
                worked=False,
            )
        try:
            return model_at(candidate, key, self._http)
        except Exception as error:  # noqa: BLE001 - a missing package, or a value that an SDK refuses
            raise fault_of(error, candidate) from None

    def _pause(self, fault: CallFault, tried: int) -> float:
        """How long to wait before the next try: as asked, or longer each time."""
        if fault.retry_after is not None:
            return fault.retry_after if fault.retry_after <= self._settings.patience_seconds else float("inf")
        pause = float(self._settings.retry_base_seconds * 2 ** (tried - 1))
        return min(self._settings.patience_seconds, pause) * random.uniform(0.75, 1.25)

    def _say_retry(self, text: str, **data: str | float) -> None:
        self._transcript.say(EventKind.RETRY, self._secrets.hide(text), data)


def _sum(faults: Sequence[CallFault]) -> CallFault:
    """One fault for several models that failed, each in its own way."""
    last = faults[-1]
    if len(faults) == 1 or not last.allows_fallback:
        return last
    best = min(faults, key=lambda each: _HOPE.index(each.failure))
    return CallFault(
        best.failure,
        f"none of {len(faults)} models answered: {'; '.join(map(str, faults))}",
        hint=best.hint,
        retry_after=best.retry_after,
        worked=any(each.worked for each in faults),
    )
