"""Asking an engine for an answer that can be used: held, recorded, checkpointed, and sent back when it is bad."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.asking.asker import Asker, Room
    from ratchet.asking.finding import find_object
    from ratchet.asking.refusal import NoAnswer
    from ratchet.asking.sessions import Question
    from ratchet.asking.trying import Answer, BadAnswer, Good, Tried, try_until_good
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Answer",
    "Asker",
    "BadAnswer",
    "Good",
    "NoAnswer",
    "Question",
    "Room",
    "Tried",
    "find_object",
    "try_until_good",
]
