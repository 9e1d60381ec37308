"""Recording: any engine, with every session kept on a cassette as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from ratchet.engines.cassette import (
    CassetteError,
    Entry,
    Header,
    Placeholder,
    Recorded,
    add,
    changes_since,
    describe,
    look,
)
from ratchet.engines.cassette.file import check_header
from ratchet.engines.engine import Engine, Readiness
from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.session import Capabilities, Request, Session, SessionEvent, Tool
from ratchet.kernel import Misuse


class Recording:
    """Does what `engine` does, and adds each session to the cassette at `path` when it has ended, failed ones too."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._path = path

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    async def check(self) -> Readiness:
        return await self._engine.check()

    async def propose(self, request: Request) -> Session:
        header = Header(self.name, self.capabilities)
        tape = await asyncio.to_thread(self._begin, header, request)
        try:
            session = await self._engine.propose(tape.request)
        except SessionFailed as failed:
            await asyncio.to_thread(self._keep, header, tape, failed.session, failed)
            raise
        await asyncio.to_thread(self._keep, header, tape, session, None)
        return session

    def _begin(self, header: Header, request: Request) -> _Tape:
        """What can be wrong is found before the session costs anything."""
        try:
            check_header(self._path, header)
            return _Tape(request, None if request.workspace is None else look(request.workspace))
        except CassetteError as error:
            raise Misuse(str(error), hint=error.hint) from error
        except OSError as error:
            raise Misuse(f"a session cannot be recorded to {self._path}: {error}") from error

    def _keep(self, header: Header, tape: _Tape, session: Session, failed: SessionFailed | None) -> None:
        try:
            add(self._path, header, tape.recorded(session, failed))
        except (OSError, CassetteError) as error:
            raise SessionFailed(
                Failure.CRASHED,
                f"the session ended, but it could not be recorded to {self._path}: {error}",
                session=session,
                hint="make the file writable or free some space, then try again",
            ) from error


class _Tape:
    """One session while it is recorded."""

    def __init__(self, request: Request, before: Mapping[str, Entry] | None) -> None:
        self._asked = request
        self._before = before
        self._place = Placeholder(request.workspace)
        self._described = describe(request, before, self._place)
        self._steps: list[tuple[str, Mapping[str, Any]]] = []
        self.request = replace(
            request,
            listen=self._hear,
            tools=tuple(map(self._heard_tool, request.tools)),
            guard=None if request.guard is None else self._guard,
        )

    def recorded(self, session: Session, failed: SessionFailed | None) -> Recorded:
        """All of it, without the place of the workspace."""
        workspace = self._asked.workspace
        changes = [] if workspace is None else changes_since(self._before or {}, workspace)
        result: dict[str, Any] = {each.name: getattr(session, each.name) for each in fields(session)}
        result["usage"] = asdict(session.usage)
        result["transcript"] = session.transcript.decode("utf-8", "surrogateescape")
        if failed is not None:
            result |= {"failure": failed.failure, "message": str(failed), "hint": failed.hint}
            result |= {"retry_after": failed.retry_after, "worked": failed.worked}
        return Recorded(
            self._described,
            tuple(self._steps),
            tuple(changes),
            "session" if failed is None else "failed",
            self._place.hide(result),
        )

    def _hear(self, event: SessionEvent) -> None:
        self._step("event", {"kind": str(event.kind), "text": event.text, "data": event.data})
        self._asked.listen(event)

    def _heard_tool(self, tool: Tool) -> Tool:
        async def run(given: Mapping[str, Any]) -> str:
            called = {"name": tool.name, "input": given}
            try:
                result = await tool.run(given)
            except Exception as error:
                self._step("tool", {**called, "error": str(error)})
                raise
            self._step("tool", {**called, "result": result})
            return result

        return replace(tool, run=run)

    async def _guard(self, name: str, given: Mapping[str, Any]) -> str | None:
        assert self._asked.guard is not None
        answer = await self._asked.guard(name, given)
        self._step("guard", {"name": name, "input": given, "answer": answer})
        return answer

    def _step(self, kind: str, value: Mapping[str, Any]) -> None:
        """Kept as it is now: the engine may go on writing into it."""
        self._steps.append((kind, self._place.hide(value)))
