"""Replay: sessions from a cassette, without a model and without a network, marked as simulated.

The same events come in the same order, tools and the guard are asked the same, and the workspace is changed in the
same way, byte for byte. Nothing is replayed for a request that is not the recorded one.
A session that was written by hand says which prompts it answers.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ratchet.config.redaction import mask_text, redact
from ratchet.engines.cassette import (
    Cassette,
    CassetteError,
    FileState,
    Header,
    Recorded,
    add,
    changes_since,
    check_header,
    digest,
    look,
    read,
    read_header,
    remake,
)
from ratchet.engines.engine import (
    Capabilities,
    Engine,
    EngineTool,
    EventKind,
    Failure,
    McpServer,
    Readiness,
    Request,
    Session,
    SessionEvent,
    SessionFailed,
)
from ratchet.engines.registry import EngineContext
from ratchet.kernel import Misuse, RatchetError, Usage, exact_bytes, exact_text

_OPEN = "⟨"
_ESCAPED = "⟨⟨"


class Placeholder:
    """Writes `⟨workspace⟩` for the path of a workspace, in any text, and back.

    A path is looked for as it is and as it is written inside of JSON, and so is the path behind its symlinks.
    """

    def __init__(self, workspace: Path | None) -> None:
        self._paths = {} if workspace is None else _spellings(workspace)
        names = {path: name for name, path in reversed(self._paths.items())}
        found = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._names = names
        self._hidden = re.compile(rf"{_OPEN}|(?:{found})(?![\w-])" if names else _OPEN)
        self._shown = re.compile(rf"{_ESCAPED}|{_OPEN}(workspace[a-z:]*)⟩")

    def hide(self, value: Any) -> Any:
        """`value`, a JSON value, without the path in any of its texts."""
        return _mapped(value, self._hide)

    def show(self, value: Any) -> Any:
        """What was hidden, with the path of this workspace in the place of the other."""
        return _mapped(value, self._show)

    def _hide(self, text: str) -> str:
        return self._hidden.sub(
            lambda found: f"⟨{self._names[found[0]]}⟩" if found[0] != _OPEN else _ESCAPED, text
        )

    def _show(self, text: str) -> str:
        return self._shown.sub(
            lambda found: _OPEN if found[0] == _ESCAPED else self._paths.get(found[1], found[0]), text
        )


def _spellings(workspace: Path) -> dict[str, str]:
    """Name of a placeholder to what it stands for."""
    plain, real = str(workspace.absolute()), str(workspace.resolve())
    return {
        "workspace": plain,
        "workspace:real": real,
        "workspace:json": json.dumps(plain)[1:-1],
        "workspace:real:json": json.dumps(real)[1:-1],
    }


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {change(str(key)): _mapped(item, change) for key, item in value.items()}
        case list() | tuple():
            return [_mapped(item, change) for item in value]
        case None | bool() | int() | float():
            return value
        case _:
            return change(str(value))


_HOLDS, _LACKS = "prompt_holds", "prompt_lacks"


def describe(request: Request, files: Mapping[str, FileState] | None, place: Placeholder) -> dict[str, Any]:
    """The request as JSON. `files` is what lies in its workspace.

    Limits, repairs and the deadline are left out: they say how much a session may cost, and a replay checks them by
    itself. So are `environment`, `readable`, `places` and `hidden`, which say where things lie on one machine.
    """
    if files is not None:
        files = {path: entry for path, entry in files.items() if not _incidental(path, request.incidental)}
    described = {
        "prompt": mask_text(request.prompt),
        "system": None if request.system is None else mask_text(request.system),
        "model": request.model,
        "output_schema": request.output_schema,
        "mcp_servers": [_server(each) for each in request.mcp_servers],
        "tools": [
            {"name": each.name, "description": each.description, "input_schema": each.input_schema}
            for each in request.tools
        ],
        "guarded": request.guard is not None,
        "resume": request.resume,
        "data": redact(request.data),
        "workspace": None if files is None else {"files": len(files), "sha256": digest(files)},
    }
    # Only where they are asked for, so that older recordings still answer.
    for name in ("temperature", "output_tokens"):
        if (asked := getattr(request, name)) is not None:
            described[name] = asked
    plain: dict[str, Any] = json.loads(json.dumps(place.hide(described), default=str))
    return plain


def is_excerpt(recorded: Mapping[str, Any]) -> bool:
    """Whether a session was written by hand: it then names what the prompt must hold, in place of a whole request."""
    return isinstance(recorded, Mapping) and isinstance(recorded.get(_HOLDS), list)


def answers(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether a recorded session is one for what is asked now."""
    return _comparable(asked, recorded) == recorded


def difference(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """A unified diff from what was recorded to what is asked; nothing if they are the same."""
    compared = _comparable(asked, recorded)
    lines = difflib.unified_diff(_lines(recorded), _lines(compared), "recorded", "asked", lineterm="")
    return "\n".join(lines)


def _comparable(asked: Mapping[str, Any], recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is asked, in the form of what was recorded: of an excerpt, the part of it that is true now."""
    if not is_excerpt(recorded):
        return asked
    return {
        name: [text for text in recorded[name] if (str(text) in asked["prompt"]) is held]
        for name, held in ((_HOLDS, True), (_LACKS, False))
        if isinstance(recorded.get(name), list)
    }


def _incidental(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def _server(server: McpServer) -> dict[str, Any]:
    """Its address and its program differ from machine to machine, and both may hold a key."""
    over = "url" if server.url else "pipes"
    return {"name": server.name, "over": over, "environment": sorted(server.environment)}


def _lines(described: Mapping[str, Any]) -> list[str]:
    return json.dumps(_split(described), indent=2, sort_keys=True, ensure_ascii=False).splitlines()


def _split(value: Any) -> Any:
    """Long texts line by line, so that a diff shows the line that is different."""
    match value:
        case str() if "\n" in value:
            return value.splitlines(keepends=True)
        case Mapping():
            return {key: _split(item) for key, item in value.items()}
        case list():
            return [_split(item) for item in value]
        case _:
            return value


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

    def __init__(self, request: Request, before: Mapping[str, FileState] | None) -> None:
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
        result["transcript"] = exact_text(session.transcript)
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

    def _heard_tool(self, tool: EngineTool) -> EngineTool:
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
        """Kept as it is now: the engine may continue to write into it."""
        self._steps.append((kind, self._place.hide(value)))


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


def open_replay(_surroundings: EngineContext, option: str) -> Engine:
    """The cassette at the path `option`, which may be relative to the working directory."""
    return ReplayEngine(Path(option) if option else None)


class ReplayEngine:
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
                why = difference(sessions[left[0]].request, asked)
                raise CassetteMismatch(
                    f"session {left[0] + 1} of the cassette {self._path} was recorded for another request:\n{why}",
                    why,
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
            why = difference(question.described(question.answer), question.described(answer))
            raise CassetteMismatch(
                f"the {question.kind} did not answer {question.name} as it was recorded:\n{why}", why
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

    def described(self, answer: Mapping[str, Any]) -> dict[str, Any]:
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
        transcript=exact_bytes(result["transcript"]),
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
