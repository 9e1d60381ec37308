"""What the tools of one session are bound to: its workspace, its specialist and what it has handed in.

No tool takes a directory or an identity from the model, so no session can touch another one's.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ratchet.engines import EngineTool, Failure, Session, SessionFailed
from ratchet.engines.tool_server import in_words
from ratchet.kernel import (
    BudgetExceeded,
    Conflict,
    Misuse,
    NotFound,
    RatchetError,
    TrialStatus,
    decoded,
    exp_id,
)
from ratchet.ledger import Transaction
from ratchet.ledger.research import Standing, get_standing
from ratchet.ledger.trials import Trial, find_trial, get_trial
from ratchet.research.adapter import AllHooks, SessionFacts, Specialist, TaskAdapter
from ratchet.research.measurement.checkout import CandidateFiles
from ratchet.research.sessions.inputs import Idea
from ratchet.research.tasks.folder import open_plain
from ratchet.workspaces import Repository, Workspace, WorkspaceError

Form = Mapping[str, Any]
TRIAL: Form = {
    "type": ["string", "integer"],
    "description": "the id of a trial, such as 075; 000 is the baseline",
}
OFFSET: Form = {"type": "integer", "minimum": 0, "description": "where to read on; 0 is the beginning"}
_TEXT = 300
_STRAYS = 20


def strays_in(task: TaskAdapter, workspace: Workspace) -> list[str]:
    """The files in a workspace that no candidate may have, each with the reason; the first of them, if many."""

    def read(path: str) -> bytes:
        with open_plain(workspace.path / path) as file:
            return file.read()

    return CandidateFiles(task).strays(workspace.changes(), read)[:_STRAYS]


def check_strays(task: TaskAdapter, workspace: Workspace) -> None:
    """Raises `Misuse` for a workspace that could only be disqualified."""
    if strays := strays_in(task, workspace):
        raise Misuse(
            f"the workspace has files that no candidate may have: {'; '.join(strays)}",
            hint="remove them or put them back as they were, then submit again; no trial was charged",
        )


def form(required: Mapping[str, Form] | None = None, optional: Mapping[str, Form] | None = None) -> Form:
    """The schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": {**(required or {}), **(optional or {})},
        "required": list(required or {}),
        "additionalProperties": False,
    }


def text(description: str, *, longest: int) -> Form:
    return {"type": "string", "maxLength": longest, "description": description}


def tool_answer(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False, default=str)


def row(trial: Trial) -> dict[str, Any]:
    """A trial as models are shown it."""
    return {
        "exp_id": trial.exp_id,
        "parent": None if trial.parent is None else f"{trial.parent:03}",
        "specialist": trial.specialist,
        "status": trial.status or "running",
        "score": trial.score,
        "delta_vs_best": trial.delta,
        "expected_delta": trial.expected_delta,
        "hypothesis": trial.hypothesis[:_TEXT],
        "reason": (trial.reason or "")[:_TEXT],
    }


def page(content: str, offset: int, *, size: int) -> dict[str, Any]:
    """A part of a long text, and where the next one begins."""
    end = offset + size
    rest = {"next_offset": end} if end < len(content) else {}
    return {"characters": len(content), "offset": offset, **rest, "content": content[offset:end]}


_Said = TypeVar("_Said")


class SessionToolFailed(RatchetError):
    """What went wrong with a tool, as the model reads it."""


class HookCalls:
    """The hooks of one session. What they raise becomes a `SessionFailed`, and breaks the session off."""

    def __init__(self, context: SessionContext, engine: str) -> None:
        self._sitting = context
        self._facts = context.facts
        self._engine = engine
        self._hooks = AllHooks(context.task.hooks())

    async def started(self) -> None:
        await self._heard("session_started", self._hooks.session_started(self._facts))

    async def ended(self, problem: str | None) -> None:
        await self._heard("session_ended", self._hooks.session_ended(self._facts, problem))

    def watched(self, tool: EngineTool) -> EngineTool:
        """The tool, with the hooks asked before and after each use, and its answers of a bearable length."""
        facts, hooks = self._facts, self._hooks

        async def run(given: Mapping[str, Any]) -> str:
            objection = await self._heard("before_tool", hooks.before_tool(facts, tool.name, given))
            if objection is not None:
                raise SessionToolFailed(self._sitting.outputs.capped(f"this was forbidden: {objection}"))
            failed = False
            try:
                found: object = await tool.run(given)
                # A task's own tool may return what it found as it is.
                answer = (
                    found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
                )
            except Exception as error:  # noqa: BLE001 - reported to the model, as a tool promises
                answer, failed = in_words(error), True
            said = await self._heard("after_tool", hooks.after_tool(facts, tool.name, given, answer))
            capped = self._sitting.outputs.capped(said)
            if failed:
                raise SessionToolFailed(capped)
            return capped

        return EngineTool(tool.name, tool.description, tool.input_schema, run)

    async def _heard(self, name: str, calling: Awaitable[_Said]) -> _Said:
        try:
            return await calling
        except Exception as error:
            broken = SessionFailed(
                Failure.REFUSED,
                f"the hook {name} failed: {type(error).__name__}: {error}",
                session=Session(self._engine),
                hint="fix the hooks of the task: no session runs without them",
            )
            self._sitting.break_off(broken)
            raise broken from error


MOST = 16 * 1024
"""The bytes of one answer."""
_KEPT = 8 * 1024 * 1024
# Room for the line that says how to read on.
_NOTE = 200


class ToolOutputs:
    """The long answers of one session, oldest forgotten first."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        self._last = 0

    def capped(self, answer: str) -> str:
        """The answer itself, or its beginning and how to read the rest."""
        # Paths and diffs may hold bytes that are no text, which cannot be sent.
        whole = answer.encode(errors="replace")
        if len(whole) <= MOST:
            return whole.decode()
        self._last += 1
        self._texts[self._last] = whole
        while len(self._texts) > 1 and sum(map(len, self._texts.values())) > _KEPT:
            self._texts.popitem(last=False)
        return self._part(self._last, 0)

    def read(self, number: int, offset: int) -> str | None:
        """A part of a long answer; `None` if there is no such answer (any more)."""
        return self._part(number, offset) if number in self._texts else None

    def _part(self, number: int, offset: int) -> str:
        whole = self._texts[number]
        part = whole[offset : offset + MOST - _NOTE]
        if offset + len(part) < len(whole):
            # Not in the middle of a character.
            part = part.decode(errors="ignore").encode()
        end = offset + len(part)
        text = decoded(part)
        if end >= len(whole):
            return text
        how = f"read_output with output={number} and offset={end}"
        return f"{text}\n[cut: {len(whole) - end} of {len(whole)} bytes are left; {how} reads on]"


@dataclass(frozen=True, slots=True)
class TrialSnapshot:
    """A trial and the commit that holds its files."""

    trial: Trial
    commit: str


Submit = Callable[[Idea], Awaitable[Trial]]
"""Commits the workspace as it is, makes a trial of it and returns the trial when it has ended.

`Misuse`, `WorkspaceError` and `BudgetExceeded` are reported to the model. Anything else ends the session and is raised
where that was begun.
"""


@dataclass(kw_only=True)
class SessionContext:
    """One session. `read` and `write` open transactions of the ledger; `parent` is the trial the workspace stands on.

    Without `lineage` the session can read nothing that another one did. `broken` says why it had to be ended.
    """

    run_id: int
    task: TaskAdapter
    specialist: Specialist
    repository: Repository
    workspace: Workspace
    parent: int
    submit: Submit
    read: Callable[[], AbstractContextManager[Transaction]]
    write: Callable[[], AbstractContextManager[Transaction]]
    lineage: bool = True
    trials: list[Trial] = field(default_factory=list)
    outputs: ToolOutputs = field(default_factory=ToolOutputs)
    lessons: int = field(default=0, init=False)
    broken: Exception | None = field(default=None, init=False)
    on_break: Callable[[], object] | None = field(default=None, init=False)
    _torn: bool = field(default=False, init=False)
    _closed: str | None = field(default=None, init=False)
    _trying: asyncio.Task[Trial] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._first_parent = self.parent

    @property
    def facts(self) -> SessionFacts:
        return SessionFacts(self.run_id, self.specialist.name, self.workspace.path)

    @property
    def trials_left(self) -> int:
        used = sum(trial.status is None or trial.status.tried for trial in self.trials)
        return 0 if self._closed else max(0, self.task.trials_per_session - used)

    def standing(self) -> Standing:
        with self.read() as tx:
            return get_standing(tx, self.run_id)

    def snapshot(self, number: int) -> TrialSnapshot:
        """A trial that this session may look at. Raises `NotFound` or `Misuse`."""
        with self.read() as tx:
            found = find_trial(tx, self.run_id, number)
        if found is None or (found.status is not None and not found.status.tried):
            raise NotFound("trial", exp_id(number))
        own = {0, self._first_parent, *(trial.number for trial in self.trials)}
        if not self.lineage and number not in own:
            raise NotFound("trial", exp_id(number))
        if found.commit is None:
            raise Misuse(
                f"of trial {found.exp_id} only the row is known, not the files", hint="choose another one"
            )
        return TrialSnapshot(found, found.commit)

    def baseline_commit(self) -> str:
        with self.read() as tx:
            commit = get_trial(tx, self.run_id, 0).commit
        if commit is None:
            raise Conflict(f"the files of the baseline of run {self.run_id} are not known")
        return commit

    async def rebase(self, snapshot: TrialSnapshot) -> None:
        """Bring the workspace to a trial's files, and stand on it. Raises `Conflict` while a trial is made of it."""
        self._check_idle()
        # Until it is done: files of two trials must never be handed in as one.
        self._torn = True
        await asyncio.to_thread(self.workspace.rebase, snapshot.commit)
        self.parent, self._torn = snapshot.trial.number, False

    async def hand_in(self, idea: Idea) -> Trial:
        """Make a trial of the workspace. It continues when the model hangs up, since it has its number by then.

        Raises `Conflict` when this session may not hand in (any more), and `Misuse` for stray files.
        """
        self._check_idle()
        if self._torn:
            raise Conflict(
                "the workspace is half of one trial and half of another", hint="use rebase_to again"
            )
        if not self.trials_left:
            most = self.task.trials_per_session
            why = self._closed or f"this session may make {most} trial{'s' if most > 1 else ''}, and has"
            raise Conflict(why, hint="end the session with a short summary")
        await asyncio.to_thread(check_strays, self.task, self.workspace)
        self._check_idle()
        self._trying = asyncio.create_task(self._make(idea))
        return await asyncio.shield(self._trying)

    async def settled(self, *, cancel: bool = False) -> None:
        """Wait until nothing is being measured for this session; with `cancel` that is cut short."""
        if self._trying is None:
            return
        trying = self._trying
        try:
            if cancel:
                trying.cancel()
            await asyncio.wait({trying})
        except asyncio.CancelledError:
            trying.cancel()
            await asyncio.wait({trying})
            raise

    def break_off(self, reason: Exception) -> None:
        """End the session as failed, whatever it is doing."""
        if self.broken is None:
            self.broken = reason
            if self.on_break is not None:
                self.on_break()

    async def _make(self, idea: Idea) -> Trial:
        try:
            trial = await self.submit(idea)
        except BudgetExceeded as spent:
            self._closed = str(spent)
            raise
        except (Misuse, WorkspaceError):
            raise
        except Exception as error:
            self.break_off(error)
            raise
        finally:
            self._trying = None
        self.trials.append(trial)
        if trial.status is TrialStatus.INFRA_ERROR:
            self._closed = "the machine could not measure the last trial, so it is not asked for another one"
        return trial

    def _check_idle(self) -> None:
        if self._trying is not None:
            raise Conflict("a trial of this session is being measured", hint="wait for its result")
