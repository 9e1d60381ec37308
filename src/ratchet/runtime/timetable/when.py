"""Reading when something is to happen: plain English or a cron expression."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.runtime.timetable import cron, telling
from ratchet.runtime.timetable.english import listen
from ratchet.runtime.timetable.moments import check_cron


@dataclass(frozen=True, slots=True)
class When:
    """A cron expression, and what it means in words. Reading the words gives the same times again."""

    cron: str
    words: str


def read_when(text: str) -> When:
    """What `text` says. Raises `Misuse` naming what was not understood; nothing is guessed."""
    given = " ".join(text.split())
    understood = cron.as_cron(given) or listen(given).cron(given)
    check_cron(understood)
    return When(understood, telling.tell(understood))
