"""Sessions as they are shown: who was asked by whom, what it cost, how it ended, and what was said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import model_validator

from ratchet import kernel
from ratchet.ledger import Artifact, Transaction
from ratchet.ledger.artifacts import of_attempt
from ratchet.ledger.sessions import SessionRow
from ratchet.loop import PROMPT_FILE
from ratchet.server.fields import Foreign, Json, Moment, Shape


class Usage(Shape):
    """What was used. A cost of which a part is unknown is null."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None
    wall_seconds: float

    @model_validator(mode="before")
    @classmethod
    def _whole_cost(cls, used: Any) -> Any:
        if not isinstance(used, kernel.Usage):
            return used
        return {name: getattr(used, name) for name in cls.model_fields} | {"cost_usd": used.whole_cost_usd}


class Session(Shape):
    """`failure` is empty for one that ended well. `priced` is false where tokens were used and no price is known."""

    id: int
    run_id: int | None
    attempt_id: int | None
    role: str
    engine: str
    model: str | None
    failure: str | None
    reason: str | None
    resumable: bool
    transcript: str | None
    simulated: bool
    usage: Usage
    priced: bool
    ended_at: Moment

    @classmethod
    def of(cls, row: SessionRow) -> Session:
        own = {name: getattr(row, name) for name in cls.model_fields if hasattr(row, name)}
        return cls.model_validate(
            {
                **own,
                "resumable": row.resume is not None,
                "priced": row.usage.unpriced_tokens == 0,
                "ended_at": row.at,
            }
        )


class Entry(Shape):
    """`turn` is what was used since the entry before that told usage."""

    number: int
    ms: int
    kind: str
    text: Foreign
    data: Json
    turn: Usage | None


def prompt_of(tx: Transaction, session: SessionRow) -> Artifact | None:
    """What the session was asked, where its flow keeps that: the last one that was kept before its transcript."""
    if session.attempt_id is None:
        return None
    kept = of_attempt(tx, session.attempt_id)
    names = (f"{session.role}-prompt.md", *((PROMPT_FILE,) if session.role == "author" else ()))
    end = _number(kept, session.transcript)
    found = [each for each in kept if each.name in names and (end is None or each.id <= end)]
    return max(found, key=lambda each: each.id, default=None)


def _number(kept: Sequence[Artifact], sha256: str | None) -> int | None:
    return max((each.id for each in kept if each.sha256 == sha256), default=None)
