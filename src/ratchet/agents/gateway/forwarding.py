"""Bringing a request to whoever answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ratchet.agents.gateway.answer import Answer, AnswerHead
from ratchet.agents.gateway.backend import Broken, NotTaken, Source
from ratchet.agents.gateway.directory import Directory, Entered
from ratchet.agents.gateway.pool import Pool
from ratchet.agents.gateway.refusal import Refusal
from ratchet.agents.gateway.request import Request, is_session
from ratchet.agents.gateway.routes import Architect, shown
from ratchet.kernel import RatchetError
from ratchet.observe.logs import logger

_log = logger(__name__)

# A server that does not take a request has just ended. After these pauses its host has noticed, and leads elsewhere.
_PAUSES_SECONDS = (0.0, 0.05, 0.5)


class BrokenOff(Exception):
    """The answer ended in the middle, after its caller had heard the beginning."""


class Forwarding:
    def __init__(self, directory: Directory, pool: Pool, architect_port: Callable[[], int | None]) -> None:
        self._directory = directory
        self._pool = pool
        self._architect_port = architect_port

    async def forward(self, request: Request, transport: asyncio.Transport, source: Source) -> None:
        """Have a request answered. Raises `Refusal` when nobody does, and `BrokenOff`.

        A request is brought again only if it is certain that no server has read it.
        """
        reason = ""
        for number, pause in enumerate(_PAUSES_SECONDS):
            if pause:
                await asyncio.sleep(pause)
            entered = await self._enter(request)
            answer = Answer(request.head, transport, partial(_note_session, request, entered))
            try:
                await self._through(entered.port, request, answer, source, new=number > 0)
                return
            except NotTaken as error:
                reason = str(error)
            except Refusal as error:
                if answer.begun:
                    raise BrokenOff from error
                raise
            except Broken as error:
                _log.warning(
                    "a server left a call without an answer", to=shown(request.route), reason=str(error)
                )
                if answer.begun:
                    raise BrokenOff from error
                raise Refusal(
                    502,
                    f"{shown(request.route)} did not answer: {error}",
                    hint="what it did is not known; `ratchet agent logs NAME --printed` shows how it ended",
                ) from error
            finally:
                entered.leave()
        raise Refusal(502, f"{shown(request.route)} does not take calls: {reason}", hint="try again")

    async def _enter(self, request: Request) -> Entered:
        if isinstance(request.route, Architect):
            port = self._architect_port()
            if port is None:
                raise Refusal(503, "the Architect is not up", hint="try again")
            return _AtArchitect(port)
        try:
            return await self._directory.enter(request.route, request.head.session)
        except RatchetError as error:
            raise Refusal(error.http_status, str(error), hint=error.hint) from error

    async def _through(
        self, port: int, request: Request, answer: Answer, source: Source, *, new: bool
    ) -> None:
        try:
            # What is not here as a whole could not be brought again, should a kept connection turn out to be closed.
            backend = await self._pool.take(port, new=new or not request.complete)
        except OSError as error:
            raise NotTaken(error.strerror or "it takes no connections") from error
        try:
            reusable = await backend.carry(request, answer, source)
        except BaseException:
            backend.abort()
            raise
        if reusable and request.complete:
            self._pool.give_back(backend)
        else:
            backend.abort()


class _AtArchitect(NamedTuple):
    """The Architect keeps its sessions to itself."""

    port: int

    def leave(self) -> None:
        pass

    def session_opened(self, session: str) -> None:
        pass

    def session_closed(self, session: str) -> None:
        pass


def _note_session(request: Request, entered: Entered, head: AnswerHead) -> None:
    """Tell of a session that begins or ends with this answer, before the caller can use what it learns."""
    if not 200 <= head.status < 300:
        return
    asked = request.head.session
    if asked is None:
        opened = head.value(b"mcp-session-id")
        if opened is not None and is_session(opened):
            entered.session_opened(opened.decode("ascii"))
    elif request.head.method == b"DELETE":
        entered.session_closed(asked)
