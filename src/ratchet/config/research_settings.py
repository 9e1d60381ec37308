"""The table of research."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ratchet.config.quantities import Count, Real, Seconds
from ratchet.config.section import Section


class Research(Section):
    stagger_seconds: Annotated[Real, Field(ge=0)] = Field(
        1.0, description="pause between the starts of the first sessions of a run"
    )
    backoff_seconds: Seconds = Field(
        30.0,
        description="pause of a specialist after a session that failed or handed in nothing; doubles with each",
    )
    backoff_cap_seconds: Seconds = Field(900.0, description="the longest such pause")
    infra_tries: Count = Field(
        3, description="measurements of a trial that the machine may spoil before it counts as an infra_error"
    )
    infra_errors: Count = Field(5, description="such trials in a row after which a run stops")
    prompt_chars: Annotated[Count, Field(ge=2_000)] = Field(
        24_000, description="the most that a prompt tells of earlier trials"
    )

    @model_validator(mode="after")
    def _pauses_fit(self) -> Self:
        if self.backoff_cap_seconds < self.backoff_seconds:
            raise ValueError(
                f"backoff_cap_seconds is {self.backoff_cap_seconds:g}; it must be at least backoff_seconds "
                f"({self.backoff_seconds:g})"
            )
        return self
