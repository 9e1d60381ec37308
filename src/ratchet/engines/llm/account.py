"""What a session has used so far, and whether it may go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ratchet.config.llm_settings import Prices
from ratchet.engines.failure import Failure
from ratchet.engines.llm.choice import Candidate
from ratchet.engines.llm.fault import CallFault
from ratchet.engines.prices import how_to_price, no_price, output_tokens_for, price_of, priced
from ratchet.engines.session import EventKind
from ratchet.engines.transcript import Transcript
from ratchet.kernel import Limits, Usage

if TYPE_CHECKING:
    from pydantic_ai.usage import RequestUsage


class Account:
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

    def check_prices(self, candidates: Iterable[Candidate]) -> None:
        """Refuse to spend from a budget of money what nobody can count. Raises `CallFault`."""
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

    def output_tokens(self, candidate: Candidate) -> int | None:
        """The most tokens out that the limits still allow, if they say anything about it."""
        left = self._limits.less(self.usage)
        most = [] if left.tokens is None else [left.tokens]
        price = candidate_price(candidate, self._prices)
        if left.cost_usd is not None and price is not None:
            bought = output_tokens_for(left.cost_usd * 1_000_000, price)
            most += [] if bought is None else [bought]
        return max(1, min(most)) if most else None

    def charge(self, candidate: Candidate, used: RequestUsage) -> None:
        """Add what one call used, finished or not, and tell the sum."""
        input_tokens = max(0, used.input_tokens)
        call = Usage(
            input_tokens=input_tokens,
            cached_tokens=min(max(0, used.cache_read_tokens), input_tokens),
            output_tokens=max(0, used.output_tokens),
        )
        price = candidate_price(candidate, self._prices, input_tokens)
        self._used += priced(call, price)
        self.calls += 1
        if used.unmeasured_requests:
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
    candidate: Candidate, table: Mapping[str, Prices], request_tokens: int = 0
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
