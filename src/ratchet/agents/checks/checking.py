"""The checks of a version, one after the other."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from ratchet.agents.checks.answering import check_calls, check_state_after, check_tools, started
from ratchet.agents.checks.form import check_form
from ratchet.agents.checks.own_tests import check_tests, try_base_tests
from ratchet.agents.checks.record import Record
from ratchet.agents.checks.snapshot import take_snapshot
from ratchet.agents.servers import Pair
from ratchet.config.agent_settings import Agents
from ratchet.judges.deadline import Deadline
from ratchet.judges.scratch import copied, in_thread, scratch
from ratchet.kernel import RatchetError

_SPARE_SECONDS = 60.0


async def check_all(
    directory: Path, settings: Agents, record: Record, *, agent: str, base: Path | None, deadline: Deadline
) -> Pair:
    """Make every check of what lies in `directory`, on copies; the servers that were started, which have ended by then.

    Raises `NotPassed` at the first check that the version does not pass.
    """
    async with scratch() as place:
        with record.check("files") as section:
            snapshot = await in_thread(lambda: take_snapshot(directory, place / "snapshot"))
            form = await check_form(snapshot, base, settings, deadline=deadline)
            section |= form.details
        source = snapshot.directory

        if form.tests is not None:
            with record.check("tests") as section:
                section |= await check_tests(
                    source, form.tests, place, settings, agent=agent, deadline=deadline
                )

        running = await copied(source, place / "running")
        async with AsyncExitStack() as held:
            with record.check("start-up") as section:
                pair = await held.enter_async_context(started(running, settings, section, agent=agent))
                tools = {server.role: server.tools for server in (pair.runner, pair.tuner)}
                section |= await check_tools(tools, source, deadline)
            with record.check("canary") as section:
                answers: list[Any] = []
                section["answers"] = answers
                await check_calls(pair, form.calls, settings, answers)
                await check_state_after(source, running, deadline)
                section["calls"] = len(answers)

        if base is not None:
            tried = await _try_base_tests(source, base, place, settings, agent=agent, deadline=deadline)
            record.sections |= {} if tried is None else {"base_tests": tried}
        return pair


async def _try_base_tests(
    source: Path, base: Path, place: Path, settings: Agents, *, agent: str, deadline: Deadline
) -> dict[str, Any] | None:
    """Behaviour may change on purpose, so it is only told whether old tests still pass."""
    left = deadline.left
    if left is not None and left < settings.tests_seconds + _SPARE_SECONDS:
        return {"passed": None, "reason": "there was not enough time left to run them"}
    try:
        return await try_base_tests(source, base, place, settings, agent=agent, deadline=deadline)
    except RatchetError as error:
        return {"passed": None, "reason": str(error)}
