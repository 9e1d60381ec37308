"""One session of the Codex CLI while it is held: what it used and said, and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from ratchet.config.llm_settings import Prices
from ratchet.engines.answer import NotAnAnswer, parse_answer
from ratchet.engines.codex.access import CodexAccess
from ratchet.engines.codex.conversation import Conversation
from ratchet.engines.codex.errors import fault_of
from ratchet.engines.codex.kept import KeptRollouts
from ratchet.engines.codex.rollout import Rollout
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.prices import how_to_price, no_price, price_of, priced
from ratchet.engines.session import EventKind, Request, Session
from ratchet.engines.supervision import check_budget
from ratchet.kernel import Usage
from ratchet.sandbox import Finished

# Codex itself watches only an answer that has begun. One that never begins looks from here like a model that thinks,
# so this is the longest that a model may think.
_PATIENCE = 4


class Sitting:
    def __init__(
        self,
        request: Request,
        conversation: Conversation,
        access: CodexAccess,
        prices: Mapping[str, Prices],
    ) -> None:
        self.request = request
        self.conversation = conversation
        self._settings = access.settings
        self._names = access.names
        self._prices = prices
        self.asked_model = access.model
        self._told = Usage()
        self._resume: str | None = None
        self._layers: tuple[str, ...] = ()
        self.rollout: Rollout | None = None
        """None until there is a place for it."""

    @property
    def model(self) -> str | None:
        return (self.rollout.model if self.rollout else None) or self.asked_model

    @property
    def worked(self) -> bool:
        return self.conversation.worked or self._told.tokens > 0

    def used(self) -> Usage:
        """What the session has used until now; the listener is told whenever that is more tokens than before."""
        transcript = self.conversation.transcript
        tokens = self._tokens()
        usage = replace(priced(tokens, self._price()), wall_ms=transcript.wall_ms)
        if usage.tokens > self._told.tokens:
            self._told = usage
            transcript.say(EventKind.USAGE, data={"model": self.model, **asdict(usage)})
        return usage

    def check_price(self) -> None:
        """Raise `Fault` when a budget of money is given that could not be held to."""
        allowed = self.request.limits.cost_usd
        if allowed is not None and self._price() is None:
            model = self.model or "the model that Codex chooses by itself"
            raise Fault(
                Failure.MISSING,
                no_price(model, allowed),
                hint=how_to_price(self.model or "MODEL"),
            )

    def _price(self) -> Prices | None:
        settings = self._settings
        return price_of(self.model, self._prices, url=settings.base_url, keyless=not settings.key_variable)

    def look(self) -> Fault | None:
        """What is to end the session while it runs."""
        if fault := check_budget(self.request, self.used()):
            return fault
        most = _PATIENCE * self._settings.idle_seconds
        if self.conversation.silent_seconds <= most:
            return None
        return Fault(
            Failure.CRASHED,
            f"Codex was silent for {most:g} seconds, and no command of it was running",
            hint="check the state of the endpoint, or raise engines.codex.idle_seconds",
        )

    def keep(self, kept: KeptRollouts, hide: Callable[[str], str]) -> None:
        """Let the session be resumed later. One that cannot be is still a session."""
        thread, rollout = self.conversation.thread, self.rollout
        if thread is None or rollout is None or rollout.path is None:
            return
        try:
            kept.keep(thread, rollout.path, hide)
        except (OSError, ValueError) as error:
            self.conversation.transcript.say(EventKind.NOTE, f"the session cannot be resumed: {error}")
        else:
            self._resume = thread

    def session(self, output: Any = None) -> Session:
        """What the session came to so far."""
        usage = self.used()
        return Session(
            engine="codex",
            model=self.model,
            text=self.conversation.text,
            output=output,
            usage=usage,
            resume=self._resume,
            transcript=self.conversation.transcript.content,
            data={"layers": list(self._layers)},
        )

    def conclude(self, finished: Finished, complaint: str) -> Session:
        """The session, now that Codex has ended. Raises `Fault` unless a turn was completed and can be used."""
        talk, usage = self.conversation, self.used()
        self._layers = finished.layers
        if talk.error is not None or not talk.completed or finished.exit_code != 0:
            if complaint:
                talk.transcript.say(EventKind.NOTE, complaint)
            reason = self.rollout.reason if self.rollout else None
            raise fault_of(talk.error or complaint or _ending(finished), reason, self._names)
        if self.rollout is not None:
            self.rollout.check_sandbox()
        if fault := check_budget(self.request, usage):
            raise fault
        if not talk.worked:
            raise Fault(
                Failure.BAD_OUTPUT,
                "Codex ended its turn without having said or done anything",
                hint="the model may have refused: change the prompt, or try another model",
            )
        return self.session(self._output())

    def _tokens(self) -> Usage:
        if self.rollout is None:
            return Usage()
        self.rollout.read()
        total = self.conversation.usage
        return self.rollout.used if total is None else self.rollout.since_resumed(total)

    def _output(self) -> Any:
        if self.request.output_schema is None:
            return None
        try:
            return parse_answer(self.conversation.text, self.request.output_schema)
        except NotAnAnswer as error:
            raise Fault(
                Failure.BAD_OUTPUT,
                f"Codex did not answer as it was asked: {error}",
                hint="Codex does not check answers itself: try again, or try a model that keeps to schemas",
            ) from None


def _ending(finished: Finished) -> str:
    if finished.signal is not None:
        return f"it was ended by signal {finished.signal}"
    return f"it ended with code {finished.exit_code} without completing its turn"
