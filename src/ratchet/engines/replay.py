"""Replay: sessions from a cassette, without a model and without a network, marked as simulated.

The same events come in the same order, tools and the guard are asked the same, and the workspace is changed in the
same way, byte for byte. Nothing is replayed for a request that is not the recorded one.
A session that was written by hand says which prompts it answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.engines.cassette import (
    Cassette,
    CassetteError,
    Placeholder,
    Recorded,
    answers,
    describe,
    difference,
    is_excerpt,
    look,
    read,
    read_header,
    remake,
)
from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.registry import Surroundings
from ratchet.engines.session import Capabilities, EventKind, Request, Session, SessionEvent
from ratchet.kernel import Misuse, RatchetError, Usage

_NAME = "replay"
_NO_CASSETTE = "no cassette is named"
_HOW = "name it as replay:FILE; `ratchet engine record` makes one"
_AGAIN = "record the session again"
_EVERYTHING = Capabilities(True, True, True, True, True, own_tools=True)


class CassetteMismatch(Misuse):
    """The cassette holds no answer to this request; `difference` shows what is other than recorded."""

    def __init__(self, message: str, difference: str = "") -> None:
        super().__init__(message, hint="record the session again if the new request is meant")
        self.difference = difference


def open_replay(_surroundings: Surroundings, option: str) -> Engine:
    """The cassette at the path `option`, which may be relative to the working directory."""
    return Replay(Path(option) if option else None)


class Replay:
    """Replays the cassette at `path`.

    Each session is used once. A request gets the first one that is left with the same request, so that a process which
    is started again finds its place. One that was written by hand answers whatever prompt fits it, as often as it is
    asked. Without `strict` a request gets the first session that is left, whatever was asked.
    """

    def __init__(self, path: Path | None, *, strict: bool = True) -> None:
        self._path = path
        self._strict = strict
        self._cassette: Cassette | None = None
        self._used: set[int] = set()
        # One request at a time chooses its session.
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """With the recorded engine in it: a judge must not be its author in a replay either."""
        try:
            return _NAME if self._path is None else f"{_NAME}:{read_header(self._path).engine}"
        except (OSError, CassetteError):
            return _NAME

    @property
    def capabilities(self) -> Capabilities:
        try:
            return _EVERYTHING if self._path is None else read_header(self._path).capabilities
        except (OSError, CassetteError):
            return _EVERYTHING

    async def check(self) -> Readiness:
        if self._path is None:
            return Readiness(False, _NO_CASSETTE, _HOW)
        try:
            cassette = await asyncio.to_thread(read, self._path)
        except (OSError, CassetteError) as error:
            return Readiness(False, str(error), getattr(error, "hint", None) or _HOW)
        return Readiness(True, f"{len(cassette.sessions)} sessions of {cassette.header.engine}")

    async def propose(self, request: Request) -> Session:
        place = Placeholder(request.workspace)
        recorded = await asyncio.to_thread(self._choose, request, place)
        try:
            session, failed = _ending(self.name, recorded.ending, place.show(recorded.result))
            steps = [_step(kind, place.show(value)) for kind, value in recorded.steps]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._unreadable(f"the cassette {self._path} is damaged: {error!r}") from error
        for step in steps:
            if isinstance(step, SessionEvent):
                request.listen(step)
            else:
                await self._ask(step, request)
        if request.workspace is not None:
            await asyncio.to_thread(_remake, request.workspace, recorded, session)
        if failed is not None:
            raise failed
        if over := request.limits.exceeded_by(session.usage):
            measure, used, limit = over
            message = f"the session used {used:g} of {limit:g} {measure} that it was given"
            raise SessionFailed(Failure.BUDGET, message, session=session)
        return session

    def _choose(self, request: Request, place: Placeholder) -> Recorded:
        files = None if request.workspace is None else look(request.workspace)
        asked = describe(request, files, place)
        with self._lock:
            sessions = self._read().sessions
            left = [number for number in range(len(sessions)) if number not in self._used]
            if not left:
                raise CassetteMismatch(f"the cassette {self._path} is used up after {len(sessions)} sessions")
            fitting = [
                number for number in left if not self._strict or answers(sessions[number].request, asked)
            ]
            if not fitting:
                told = difference(sessions[left[0]].request, asked)
                raise CassetteMismatch(
                    f"session {left[0] + 1} of the cassette {self._path} was recorded for another request:\n{told}",
                    told,
                )
            chosen = sessions[fitting[0]]
            if not is_excerpt(chosen.request):
                self._used.add(fitting[0])
            return chosen

    def _read(self) -> Cassette:
        if self._path is None:
            raise Misuse(_NO_CASSETTE, hint=_HOW)
        if self._cassette is None:
            try:
                self._cassette = read(self._path)
            except CassetteError as error:
                raise self._unreadable(str(error), hint=error.hint or _AGAIN) from error
            except OSError as error:
                message = f"the cassette {self._path} cannot be read: {error.strerror}"
                raise self._unreadable(message, Failure.MISSING, _HOW) from error
        return self._cassette

    def _unreadable(
        self, message: str, failure: Failure = Failure.BAD_OUTPUT, hint: str = _AGAIN
    ) -> SessionFailed:
        nothing = Session(self.name, simulated=True)
        return SessionFailed(failure, message, session=nothing, hint=hint, worked=False)

    async def _ask(self, question: _Question, request: Request) -> None:
        """Ask the tool or the guard again, for its effects; its answer is what the model went on with."""
        answer = await question.answered_by(request)
        if self._strict and answer != question.answer:
            told = difference(question.told(question.answer), question.told(answer))
            raise CassetteMismatch(
                f"the {question.kind} did not answer {question.name} as it was recorded:\n{told}", told
            )


@dataclass(frozen=True, slots=True)
class _Question:
    """What a tool or the guard was asked in the session, and what it said."""

    kind: str
    name: str
    given: Mapping[str, Any]
    answer: Mapping[str, Any]

    async def answered_by(self, request: Request) -> Mapping[str, Any]:
        if self.kind == "guard":
            guard = request.guard
            return {"answer": None if guard is None else await guard(self.name, self.given)}
        for tool in request.tools:
            if tool.name == self.name:
                try:
                    return {"result": await tool.run(self.given)}
                except Exception as error:  # noqa: BLE001 - it is compared with the recorded one
                    return {"error": str(error)}
        return {}

    def told(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {"name": self.name, "input": self.given, **answer}


def _step(kind: str, value: Mapping[str, Any]) -> SessionEvent | _Question:
    if kind == "event":
        return SessionEvent(EventKind(value["kind"]), value["text"], value["data"])
    rest = {key: value[key] for key in value if key not in ("name", "input")}
    return _Question(kind, value["name"], value["input"], rest)


def _ending(engine: str, ending: str, result: Mapping[str, Any]) -> tuple[Session, SessionFailed | None]:
    """What the session came to, and how it failed if it did."""
    session = Session(
        engine,
        model=result["model"],
        text=result["text"],
        output=result["output"],
        usage=Usage(**result["usage"]),
        resume=result["resume"],
        transcript=result["transcript"].encode("utf-8", "surrogateescape"),
        simulated=True,
        data=result["data"],
        # Older cassettes have none.
        ended_at=int(result.get("ended_at", 0)),
    )
    if ending != "failed":
        return session, None
    return session, SessionFailed(
        Failure(result["failure"]),
        result["message"],
        session=session,
        hint=result["hint"],
        retry_after=result["retry_after"],
        worked=result["worked"],
    )


def _remake(workspace: Path, recorded: Recorded, session: Session) -> None:
    try:
        remake(workspace, recorded.changes)
    except (OSError, RatchetError) as error:
        raise SessionFailed(
            Failure.BAD_OUTPUT,
            f"the recorded changes cannot be made in the workspace: {error}",
            session=session,
        ) from error
