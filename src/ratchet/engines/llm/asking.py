"""Getting an answer out of several models: in order, with patience, within the budget."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ratchet.config.llm_settings import Llm
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.llm.account import Account
from ratchet.engines.llm.call import Call, Question
from ratchet.engines.llm.choice import Candidate
from ratchet.engines.llm.connection import model_at
from ratchet.engines.llm.fault import CallFault, fault_of
from ratchet.engines.llm.gate import Closed, Gate, gate_of
from ratchet.engines.llm.speech import Speech
from ratchet.engines.secrets import Secrets
from ratchet.engines.session import EventKind
from ratchet.engines.transcript import Transcript

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

# When all models failed: what will pass by itself tells more than what will not.
_HOPE = (
    Failure.RATE_LIMITED,
    Failure.TIMEOUT,
    Failure.CRASHED,
    Failure.REFUSED,
    Failure.NO_ACCESS,
    Failure.MISSING,
)

Ask = Callable[[Candidate, "Model"], Question]
"""What a model is to be asked; how depends on what it can do."""


class Asking:
    """The models of one session. One that failed is not asked again in it."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        environment: Mapping[str, str],
        settings: Llm,
        *,
        http: httpx2.AsyncClient,
        account: Account,
        transcript: Transcript,
        secrets: Secrets,
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
    def current(self) -> Candidate:
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

    async def _ask_one(self, candidate: Candidate, ask: Ask) -> ModelResponse:
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

    async def _call(self, candidate: Candidate, model: Model, ask: Ask) -> ModelResponse:
        gate = gate_of(candidate.url, candidate.endpoint)
        try:
            async with gate.passing(min(self._settings.patience_seconds, self._left())):
                response = await self._answer(Call(candidate, model, ask(candidate, model)), gate)
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

    async def _answer(self, call: Call, gate: Gate) -> ModelResponse:
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

    def _model(self, candidate: Candidate) -> Model:
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
    told = min(faults, key=lambda each: _HOPE.index(each.failure))
    return CallFault(
        told.failure,
        f"none of {len(faults)} models answered: {'; '.join(map(str, faults))}",
        hint=told.hint,
        retry_after=told.retry_after,
        worked=any(each.worked for each in faults),
    )
