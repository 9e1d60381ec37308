"""What specialists have learned: the lessons they wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ratchet.kernel import exp_id, iso
from ratchet.ledger.lessons import Lesson, list_lessons
from ratchet.ledger.transaction import Transaction
from ratchet.research.views.words import cell, json_text

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
        return [f"- {cell(each.text, _TEXT)} ({_source(each)})" for each in self.rows]

    def to_markdown(self) -> str:
        return "\n".join(self.lines()) or "No lessons yet."


def insights(tx: Transaction, run_id: int, *, limit: int = 30) -> Insights:
    newest: dict[str, Lesson] = {}
    for each in list_lessons(tx, run_id, limit=limit):
        newest.setdefault(" ".join(each.text.casefold().split()), each)
    return Insights(tuple(newest.values()))


def _source(lesson: Lesson) -> str:
    name = cell(lesson.specialist, 40)
    return name if lesson.trial is None else f"{name}, {exp_id(lesson.trial)}"
