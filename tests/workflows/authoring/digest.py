"""A workflow in Python, as a user writes it: the tests run it, and the command line finds it by its name."""

import re
from typing import Literal

from typing_extensions import TypedDict

from ratchet import step, when, workflow

WORD = re.compile(r"\w+")
STOPS = {"the", "a"}


class Draft(TypedDict):
    text: str
    score: float


def words(text: str) -> list[str]:
    return [each for each in WORD.findall(text.lower()) if each not in STOPS]


@step
def clean(texts: list[str]) -> list[str]:
    """Leave out what is empty."""
    return [text.strip() for text in texts if text.strip()]


@step(retries=2, timeout=60)
def count(text: str, factor: int = 1) -> int:
    return len(words(text)) * factor


@step
def total(numbers: list[int]) -> int:
    return sum(numbers)


@step
def polish(draft: Draft) -> Draft:
    return {"text": draft["text"][:-1], "score": draft["score"] + 0.25}


@step
def say(number: int, tone: Literal["low", "high"]) -> str:
    return f"{tone} {number}"


@workflow
def digest(messages: list[str], tone: str = "plain") -> dict[str, object]:
    """Count words."""
    texts = clean(messages)
    number = total(count.each(texts, factor=2))
    with when(number > 3):
        high = say(number, "high")
    with when(number <= 3):
        low = say(number, "low")
    draft = polish.repeat(until=lambda last: last.score >= 0.75, limit=5)({"text": "abcdef", "score": 0.0})
    return {"number": number, "high": high, "low": low, "draft": draft.text, "tone": tone}  # type: ignore[attr-defined]


@workflow
def around(messages: list[str]) -> int:
    inner = digest(messages)
    return count(f"{inner['draft']} and {inner['number']}")
