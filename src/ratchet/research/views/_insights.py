"""What specialists have learned: the lessons they wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ratchet.kernel import exp_id, iso
from ratchet.ledger.lessons import Lesson, list_lessons
from ratchet.research.views.words import cell, json_text

if TYPE_CHECKING:
    from ratchet.ledger.transaction import Transaction

_TEXT = 400


@dataclass(frozen=True, slots=True)
class Insights:
    """Newest first; one that was written twice is here once."""

    rows: tuple[Lesson, ...]

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {
                "id": each.id,
                "specialist": json_text(each.specialist),
                "exp_id": None if each.trial is None else exp_id(each.trial),
                "text": json_text(each.text),
                "at": iso(each.at),
            }
            for each in self.rows
        ]

    def lines(self) -> list[str]:
        return [_line(each.text, each.specialist, each.trial) for each in self.rows]

    def to_markdown(self) -> str:
        return "\n".join(self.lines()) or "No lessons yet."


def insights(tx: Transaction, run_id: int, *, limit: int = 30) -> Insights:
    return different(list_lessons(tx, run_id, limit=limit))


def different(newest_first: Iterable[Lesson]) -> Insights:
    """Each of these once, however often it was written."""
    newest: dict[str, Lesson] = {}
    for each in newest_first:
        newest.setdefault(_said(each.text), each)
    return Insights(tuple(newest.values()))


# One prompt after the other shows nearly the same lessons.
@lru_cache(maxsize=256)
def _said(text: str) -> str:
    """What a lesson says, however it is spaced and capitalised."""
    return " ".join(text.casefold().split())


@lru_cache(maxsize=256)
def _line(text: str, specialist: str, trial: int | None) -> str:
    name = cell(specialist, 40)
    source = name if trial is None else f"{name}, {exp_id(trial)}"
    return f"- {cell(text, _TEXT)} ({source})"
