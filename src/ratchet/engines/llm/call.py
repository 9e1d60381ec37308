"""One call of one model: the request goes out, the answer streams in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratchet.engines.failure import Failure
from ratchet.engines.llm.choice import Candidate
from ratchet.engines.llm.fault import CallFault, fault_of
from ratchet.engines.llm.speech import Speech
from ratchet.engines.session import EventKind

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RequestUsage


@dataclass(frozen=True, slots=True)
class Question:
    """What is sent to a model."""

    messages: list[ModelMessage]
    parameters: ModelRequestParameters
    settings: ModelSettings


class Call:
    """Used once. `used` is what the endpoint said so far about its usage, also when the call failed."""

    def __init__(self, candidate: Candidate, model: Model, question: Question) -> None:
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
        from pydantic_ai.direct import model_request_stream

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
