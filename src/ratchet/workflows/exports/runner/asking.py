"""Asks a model over HTTP, again where that can help."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

from ratchet.flowkit.errors import StepFailed

from .endpoints import Answer, Endpoint, Question
from .schemas import mistakes
from .sending import Answered, Unreachable, send

_TRIES = 3
_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_REPAIRS = 2
_LARGEST_BYTES = 16 * 1024 * 1024
_SHOWN_CHARS = 300
_BUSY = frozenset({408, 409, 429})


class _Later(Exception):
    """Nobody is there now. `pause` is how long to wait before asking again."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


async def ask(endpoint: Endpoint, question: Question, seconds: float) -> Answer:
    """What the model said. Raises `StepFailed`."""
    deadline = time.monotonic() + seconds
    pause = _PAUSE_SECONDS
    for left in reversed(range(_TRIES)):
        try:
            return endpoint.read(await _post(endpoint, question, deadline - time.monotonic()))
        except _Later as later:
            if not left or later.pause > _LONGEST_PAUSE_SECONDS:
                raise StepFailed(str(later)) from later
            await asyncio.sleep(max(pause, later.pause))
            pause *= 2
    raise AssertionError("the last try returns or raises")


async def ask_for_json(endpoint: Endpoint, question: Question, seconds: float) -> tuple[Any, int]:
    """A value that fits the schema of the question, and the tokens that it took with all repairs."""
    deadline, tokens = time.monotonic() + seconds, 0
    problem = ""
    for _ in range(_REPAIRS + 1):
        answer = await ask(endpoint, question, deadline - time.monotonic())
        tokens += answer.tokens
        try:
            value = json.loads(_without_fence(answer.text))
        except ValueError as error:
            problem = f"This is not JSON: {error}."
        else:
            found = next(mistakes(value, question.schema), None)
            if found is None:
                return value, tokens
            problem = f"This does not fit the schema: {found}."
        told = f"{problem} Give the whole answer again, corrected."
        question = replace(question, refused=(*question.refused, (answer.text, told)))
    raise StepFailed(f"the model's answer was not as asked after {_REPAIRS} repairs: {problem}")


async def _post(endpoint: Endpoint, question: Question, seconds: float) -> Any:
    headers = {"content-type": "application/json", "accept": "application/json", **endpoint.headers}
    body = json.dumps(endpoint.body(question)).encode()
    try:
        answer = await send("POST", endpoint.url, headers, body, seconds=seconds, most=_LARGEST_BYTES)
    except Unreachable as error:
        raise _Later(f"{endpoint.provider} at {endpoint.url} did not answer: {error}") from error
    if answer.status != 200:
        raise _refusal(endpoint, answer)
    try:
        return json.loads(answer.content)
    except ValueError as error:
        raise StepFailed(f"{endpoint.provider} sent what is not JSON: {error}") from error


def _refusal(endpoint: Endpoint, answer: Answered) -> Exception:
    text = answer.content.decode(errors="replace")
    for secret in endpoint.headers.values():
        text = text.replace(secret.removeprefix("Bearer "), "…")
    reason = f"{endpoint.provider} answered {answer.status}: {' '.join(text.split())[:_SHOWN_CHARS]}"
    if answer.status not in _BUSY and answer.status < 500:
        return StepFailed(reason, final=True)
    asked = answer.retry_after
    return _Later(reason, float(asked) if asked.replace(".", "", 1).isdecimal() else 0.0)


def _without_fence(text: str) -> str:
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.partition("\n")[2].removesuffix("```")
    return text
