"""Leaving a lesson for those who come after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.engines import Tool
from ratchet.kernel import Conflict, Misuse
from ratchet.ledger.lessons import add_lesson
from ratchet.research.sessions import inputs
from ratchet.research.sessions.sitting import Sitting
from ratchet.research.sessions.tools.forms import form, text, told

SHORTEST, LONGEST = 20, 1000
_MOST = 5


def write_lesson(sitting: Sitting) -> Tool:
    async def use(given: Mapping[str, Any]) -> str:
        lesson = inputs.notes(given["lesson"], what="lesson", longest=LONGEST)
        if len(lesson) < SHORTEST:
            raise Misuse(
                f"the lesson {lesson!r} is too short to be one",
                hint=f"write {SHORTEST} to {LONGEST} characters",
            )
        if sitting.lessons >= _MOST:
            raise Conflict(
                f"this session has written {_MOST} lessons, which is the most", hint="go on without"
            )
        last = sitting.trials[-1].number if sitting.trials else None
        with sitting.write() as tx:
            add_lesson(tx, sitting.run_id, sitting.specialist.name, lesson, trial=last)
        sitting.lessons += 1
        return told({"ok": True, "lessons_left_in_this_session": _MOST - sitting.lessons})

    return Tool(
        "write_lesson",
        "Leave a lesson for all specialists of this run: something that you found out and that holds beyond this "
        "one trial. It is shown to sessions that come after yours.",
        form({"lesson": text(f"{SHORTEST} to {LONGEST} characters", longest=2 * LONGEST)}),
        use,
    )
