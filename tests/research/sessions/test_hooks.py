"""Who hears of a session, and who may forbid what it does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ratchet.engines import EngineTool, Failure, SessionFailed
from ratchet.engines.tool_server import Calls, SessionToolAnswer
from ratchet.research.adapter import Hooks, SessionFacts, TaskAdapter
from ratchet.research.session import session_tools
from ratchet.research.sessions import SessionContext
from ratchet.research.sessions.context import MOST
from tests.research.sessions.lab import Lab


@dataclass
class Noting(Hooks):
    """Notes what it hears; `fails` names a moment at which it breaks."""

    heard: list[str] = field(default_factory=list)
    forbids: str = ""
    fails: str = ""
    says: str = ""

    def note(self, moment: str, what: str) -> None:
        self.heard.append(f"{moment} {what}")
        if self.fails == moment:
            raise ZeroDivisionError("broken")

    async def session_started(self, session: SessionFacts) -> None:
        self.note("start", session.specialist)

    async def session_ended(self, session: SessionFacts, problem: str | None) -> None:
        self.note("end", str(problem))

    async def before_tool(self, session: SessionFacts, tool: str, given: Mapping[str, Any]) -> str | None:
        self.note("before", tool)
        return "not today" if tool == self.forbids else None

    async def after_tool(
        self, session: SessionFacts, tool: str, given: Mapping[str, Any], answer: str
    ) -> str:
        self.note("after", tool)
        return answer + self.says


@dataclass(kw_only=True)
class Hooked(TaskAdapter):
    listeners: tuple[Hooks, ...] = ()

    def hooks(self) -> Sequence[Hooks]:
        return self.listeners


def hooked(lab: Lab, *listeners: Hooks) -> SessionContext:
    task = Hooked(name="widths", root=lab.task.root, recipe=lab.task.recipe, listeners=listeners)
    return lab.context(task=task)


def used(context: SessionContext, *names: str) -> list[SessionToolAnswer]:
    """A session that uses these tools, one after the other."""

    async def run() -> list[SessionToolAnswer]:
        async with session_tools(context, engine="none") as offered:
            return [await Calls(offered).use(name, {}) for name in names]

    return asyncio.run(run())


def test_each_hook_hears_of_a_session_in_order(lab: Lab) -> None:
    one, other = Noting(), Noting()
    [answer] = used(hooked(lab, one, other), "syntax_check")
    assert not answer.failed
    assert one.heard == other.heard == ["start opt", "before syntax_check", "after syntax_check", "end None"]


def test_a_session_that_takes_no_tools_is_heard_all_the_same(lab: Lab) -> None:
    listener = Noting()

    async def run() -> None:
        async with session_tools(hooked(lab, listener), engine="none", with_tools=False) as offered:
            assert offered == ()

    asyncio.run(run())
    assert listener.heard == ["start opt", "end None"]


def test_one_objection_is_enough_and_is_told_to_the_model(lab: Lab) -> None:
    one, other = Noting(forbids="syntax_check"), Noting()
    forbidden, allowed = used(hooked(lab, one, other), "syntax_check", "param_count")
    assert (forbidden.failed, forbidden.text) == (True, "this was forbidden: not today")
    assert not allowed.failed
    assert "before syntax_check" not in other.heard


def test_answers_go_through_all_of_them_errors_too(lab: Lab) -> None:
    context = hooked(lab, Noting(says=" one"), Noting(says=" two"))
    [answer] = used(context, "syntax_check")
    assert answer.text.endswith(" one two")

    async def run() -> SessionToolAnswer:
        async with session_tools(context, engine="none") as offered:
            return await Calls(offered).use("rebase_to", {"exp_id": 99})

    failed = asyncio.run(run())
    assert failed.failed
    assert failed.text == "trial 099 does not exist one two"


@pytest.mark.parametrize("moment", ["start", "before", "after", "end"])
def test_a_hook_that_breaks_ends_the_session_as_failed(lab: Lab, moment: str) -> None:
    context = hooked(lab, Noting(fails=moment))
    with pytest.raises(SessionFailed, match=r"the hook \w+ failed: ZeroDivisionError: broken") as failed:
        used(context, "syntax_check")
    assert failed.value.failure is Failure.REFUSED


def test_a_guard_that_breaks_lets_nothing_through(lab: Lab) -> None:
    ran: list[str] = []

    async def note(_given: Mapping[str, Any]) -> str:
        ran.append("ran")
        return "done"

    @dataclass(kw_only=True)
    class Tooled(Hooked):
        def tools(self, directory: object) -> Sequence[EngineTool]:
            return (EngineTool("note", "Note.", {"type": "object"}, note),)

    task = Tooled(
        name="widths", root=lab.task.root, recipe=lab.task.recipe, listeners=(Noting(fails="before"),)
    )
    with pytest.raises(SessionFailed):
        used(lab.context(task=task), "note")
    assert ran == []


def test_a_session_is_ended_also_while_it_does_something_else(lab: Lab) -> None:
    """The engine knows nothing of hooks: it works on until it is cancelled."""

    async def run() -> None:
        context = hooked(lab, Noting(fails="before"))
        async with session_tools(context, engine="none") as offered:
            calling = asyncio.create_task(Calls(offered).use("syntax_check", {}))
            try:
                await asyncio.Event().wait()
            finally:
                await calling

    with pytest.raises(SessionFailed, match="before_tool failed"):
        asyncio.run(asyncio.wait_for(run(), 60))


def test_a_cancellation_from_outside_stays_one(lab: Lab) -> None:
    listener = Noting(fails="end")

    async def hold(entered: asyncio.Event) -> None:
        async with session_tools(hooked(lab, listener), engine="none"):
            entered.set()
            await asyncio.Event().wait()

    async def run() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(hold(entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert listener.heard == ["start opt", "end it was cancelled"]


def test_hooks_are_told_why_a_session_failed(lab: Lab) -> None:
    listener = Noting()

    async def run() -> None:
        async with session_tools(hooked(lab, listener), engine="none"):
            raise ValueError("the model went away")

    with pytest.raises(ValueError, match="went away"):
        asyncio.run(run())
    assert listener.heard[-1] == "end the model went away"


def test_a_long_answer_is_cut_and_the_rest_can_be_read(lab: Lab) -> None:
    context = hooked(lab, Noting(says="x" * 40_000))
    [answer] = used(context, "syntax_check")
    assert len(answer.text.encode()) <= MOST
    assert "read_output with output=1" in answer.text
