"""The search engine: a session reads the program, draws one point, and writes it into the workspace."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ratchet.engines.engine import (
    Capabilities,
    EventKind,
    Failure,
    Fault,
    Readiness,
    Request,
    Session,
    Transcript,
)
from ratchet.engines.registry import EngineContext
from ratchet.engines.search.program import SearchProgram
from ratchet.engines.search.space import (
    OtherConstants,
    SearchPoint,
    SearchState,
    SearchTrial,
    Space,
    ranges_of,
)
from ratchet.kernel import Misuse, Usage

_Count = Annotated[int, Field(ge=0, lt=2**53)]


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class SearchProposal(_Asked):
    """The `data["proposal"]` of a session: its point, and which draw it was."""

    signature: str
    generation: _Count
    trial: _Count
    places: list[float]
    options: list[int]


class SearchFeedback(_Asked):
    """How a proposal did. Without a score it has failed, which is worse than any score."""

    proposal: SearchProposal
    score: float | None = Field(allow_inf_nan=False)


class SearchData(_Asked):
    """`trial` numbers the draw, so that workers who ask at once get different points; by default they are counted.

    `moving` says that others change the program too: a search over other constants than before begins again, and a
    program in which nothing can be searched ends the session and is no misuse.
    """

    trial: _Count | None = None
    feedback: list[SearchFeedback] = Field(default_factory=list)
    goal: Literal["max", "min"] = "max"
    seed: _Count = 0
    constants: Literal["declared", "all"] = "declared"
    files: list[str] = Field(default_factory=lambda: ["*.py"], min_length=1)
    moving: bool = False


def read_asked(data: Mapping[str, Any], **defaults: Any) -> SearchData:
    """Raises `Misuse` that names what is wrong."""
    try:
        return SearchData.model_validate({**defaults, **data})
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise Misuse(
            f"the data of the request is not what the search engine takes: {problems}",
            hint=f"it takes {', '.join(SearchData.model_fields)}; a session's data has its proposal",
        ) from None


# A draw that changes nothing is drawn again; a space of two points gives the other one long before this.
_DRAWS = 64


def open_search(_surroundings: EngineContext, option: str) -> SearchEngine:
    """`search` searches what is declared, `search:all` every number that is assigned to a name."""
    if option not in ("", "declared", "all"):
        raise Misuse(f"there is no engine search:{option}", hint="use search, or search:all")
    return SearchEngine(option or "declared")


class SearchEngine:
    """Proposes values for the constants that a program declares. The prompt says nothing to it."""

    name = "search"
    capabilities = Capabilities(edits_files=True, resumable=True, reports_usage=True, learns_scores=True)

    def __init__(self, constants: str = "declared") -> None:
        self._constants = constants

    async def propose(self, request: Request) -> Session:
        """See `Engine.propose`. `request.data` is an `SearchData`; `request.resume` is what the last session left."""
        if request.workspace is None:
            raise Misuse("the search engine changes a program, so it needs a workspace")
        if request.output_schema is not None or request.mcp_servers or request.tools or request.model:
            raise Misuse("the search engine has no model: it takes no output schema, no tools and no model")
        asked = read_asked(request.data, constants=self._constants)
        stopped = threading.Event()
        work = asyncio.ensure_future(asyncio.to_thread(_Sitting(request, asked, stopped).run))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # Nothing may be written any more when the caller continues.
            stopped.set()
            await asyncio.wait([work])
            work.exception()
            raise

    async def check(self) -> Readiness:
        # Not imported: that takes longer than all other checks together.
        try:
            found = version("cmaes")
        except PackageNotFoundError:
            return Readiness(False, "cmaes is not installed", "install Ratchet again: it comes with it")
        return Readiness(True, f"cmaes {found}; no model, no key, no network")


class _Sitting:
    """One session."""

    def __init__(self, request: Request, asked: SearchData, stopped: threading.Event) -> None:
        self._request = request
        self._asked = asked
        self._stopped = stopped
        self._ends = time.monotonic() + request.deadline_seconds
        self._transcript = Transcript(request)

    def run(self) -> Session:
        try:
            return self._run()
        except Fault as fault:
            raise fault.failed(self._session("", {}, None), worked=False) from fault

    def _run(self) -> Session:
        request, asked = self._request, self._asked
        assert request.workspace is not None
        self._transcript.say(EventKind.STARTED, data={"files": asked.files, "constants": asked.constants})
        program = self._program(request.workspace)
        space = Space.of(program.constants)
        state = self._state(space)
        trial = state.asked if asked.trial is None else asked.trial
        point, literals = self._draw(program, space, state, trial)
        self._go_on()
        for path in program.rewrite(literals):
            self._transcript.say(EventKind.FILE_CHANGE, path)
        values = {
            f"{each.path}:{each.name}": new for each, new in zip(program.constants, literals, strict=True)
        }
        text = _as_text(values)
        self._transcript.say(EventKind.MESSAGE, text)
        proposal = {
            "signature": space.signature,
            "generation": state.generation,
            "trial": trial,
            "places": list(point.places),
            "options": list(point.options),
        }
        following = state.counted(trial).encode()
        return self._session(text, {"proposal": proposal, "values": values}, following)

    def _program(self, workspace: Path) -> SearchProgram:
        """The program with its constants. One that nobody declared keeps the range that its search began with."""
        asked = self._asked
        try:
            found = SearchProgram.read(
                workspace, asked.files, undeclared=asked.constants == "all", go_on=self._go_on
            )
            Space.of(found.constants)
        except Misuse as error:
            if not asked.moving:
                raise
            hint = "it is read again when there is another best"
            raise Fault(Failure.BAD_OUTPUT, f"nothing can be searched here: {error}", hint=hint) from error
        return found.within(ranges_of(self._request.resume)) if self._request.resume else found

    def _state(self, space: Space) -> SearchState:
        """The state that the request resumes, with the results since."""
        state = self._resumed(space)
        sign = 1 if self._asked.goal == "max" else -1
        for number, each in enumerate(self._asked.feedback):
            if self._asked.moving and each.proposal.signature != space.signature:
                continue
            try:
                if each.proposal.signature != space.signature:
                    raise ValueError("it was made for other constants")
                point = space.point(each.proposal.model_dump())
            except ValueError as error:
                raise Misuse(f"feedback {number} cannot be used: {error}") from error
            worth = None if each.score is None else sign * each.score
            state = state.tell(
                space, each.proposal.generation, SearchTrial(each.proposal.trial, point, worth)
            )
        return state

    def _resumed(self, space: Space) -> SearchState:
        if self._request.resume is None:
            return SearchState.begin(space, self._asked.seed)
        try:
            return SearchState.decode(self._request.resume, space)
        except OtherConstants as error:
            if self._asked.moving:
                return SearchState.begin(space, self._asked.seed)
            raise Fault(
                Failure.REFUSED, f"the search cannot resume: {error}", hint="begin again, without `resume`"
            ) from error
        except ValueError as error:
            raise Fault(
                Failure.REFUSED, f"the search cannot resume: {error}", hint="begin again, without `resume`"
            ) from error

    def _draw(
        self, program: SearchProgram, space: Space, state: SearchState, trial: int
    ) -> tuple[SearchPoint, list[str]]:
        """The point of this trial; where the program already is what it asks for, another one."""
        for again in range(_DRAWS):
            point = state.draw(space, trial, again)
            literals = space.literals(point)
            if program.differs(literals):
                return point, literals
        raise Fault(
            Failure.BAD_OUTPUT,
            f"{_DRAWS} draws in a row proposed what the program has already",
            hint="the search has converged here; begin again, or declare wider ranges",
        )

    def _go_on(self) -> None:
        """Raise when the session is to end."""
        if self._stopped.is_set():
            raise Fault(Failure.CRASHED, "the session was cancelled")
        if time.monotonic() > self._ends:
            seconds = self._request.deadline_seconds
            raise Fault(
                Failure.TIMEOUT,
                f"the deadline of {seconds:g} s passed while the program was read",
                hint="name fewer files in the request's data",
            )

    def _session(self, text: str, data: dict[str, object], resume: str | None) -> Session:
        usage = Usage(wall_ms=max(1, self._transcript.wall_ms))
        self._transcript.say(EventKind.USAGE, data=asdict(usage))
        return Session(
            SearchEngine.name,
            text=text,
            usage=usage,
            resume=resume,
            transcript=self._transcript.content,
            data=data,
        )


def _as_text(values: dict[str, str]) -> str:
    """The proposal in one line; where there is one file only, it goes without saying."""
    alone = len({name.rpartition(":")[0] for name in values}) == 1
    return ", ".join(f"{name.rpartition(':')[2] if alone else name} = {new}" for name, new in values.items())
