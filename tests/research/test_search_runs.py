"""A search never ends a run, whatever becomes of the constants that it began with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import Loaded
from ratchet.engines import Capabilities, Engine, Readiness, Request, Session
from ratchet.engines.search import SearchEngine
from ratchet.kernel import RunStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import latest_trials
from ratchet.research.jobs import KIND
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.supervisor import research_run
from ratchet.runtime import JobContext, Kinds, Worker, open_runtime
from tests.research.hill import RECIPE, TASK, write_hill
from tests.research.test_agents import stands
from tests.waiting import eventually

UNDECLARED = RECIPE.replace("  # search: 0.0..1.0", "")
MIXED = (
    TASK
    + """
[[specialist]]
name = "tuner"
engine = "search"

[[specialist]]
name = "writer"
engine = "codex"
priority = 1
"""
)


def carry(loaded: Loaded, ledger: Ledger, engines: dict[str | None, Engine], wanted: ResearchRequest) -> int:
    async def handler(job: JobContext) -> Any:
        return await research_run(job, lambda name, _surroundings: engines[name])

    kinds = Kinds()
    kinds.add(KIND, handler)
    worker = Worker(open_runtime(loaded, ledger, kinds))
    worker.start()
    try:
        run_id = start_research(worker.runtime, wanted)
        eventually(lambda: stands(ledger, run_id))
    finally:
        worker.stop(drain_seconds=0)
    return run_id


def test_constants_that_nobody_declared_are_searched_to_the_end(
    loaded: Loaded, ledger: Ledger, tmp_path: Path
) -> None:
    hill = write_hill(tmp_path / "plain", recipe=UNDECLARED)
    engines: dict[str | None, Engine] = {"search:all": SearchEngine("all")}
    wanted = ResearchRequest(task=str(hill), engine="search:all", trials=30, parallel=4, seed=3)
    run_id = carry(loaded, ledger, engines, wanted)
    with ledger.read() as tx:
        run, standing = get_run(tx, run_id), get_standing(tx, run_id)
        kept = [each for each in latest_trials(tx, run_id, limit=50) if each.status is TrialStatus.KEEP]
    assert run.status is RunStatus.COMPLETED, run.reason
    assert standing.trials == 30
    assert len(kept) >= 2


class Writer:
    """An engine that each time leaves a better program, in which another number or none is declared."""

    name = "writer"
    capabilities = Capabilities(edits_files=True)

    def __init__(self) -> None:
        self._sessions = 0

    async def propose(self, request: Request) -> Session:
        assert request.workspace is not None
        self._sessions += 1
        await asyncio.sleep(0.05)
        x = 0.9 - 0.1 * min(self._sessions, 6)
        declared = ("  # search: 0.0..2.0", "", "  # search: 5..9")[self._sessions % 3]
        (request.workspace / "recipe.py").write_text(
            f"X = {x}{declared}\n\n\ndef climb(given):\n    return {{'x': X, 'y': 0.6}}\n"
        )
        return Session(self.name, text="HYPOTHESIS: another program should be higher up")

    async def check(self) -> Readiness:
        return Readiness(True, "always")


@pytest.mark.soak
def test_an_agent_that_changes_the_constants_ends_no_run(
    loaded: Loaded, ledger: Ledger, tmp_path: Path
) -> None:
    hill = write_hill(tmp_path / "mixed", task=MIXED)
    engines: dict[str | None, Engine] = {"search": SearchEngine(), "codex": Writer()}
    run_id = carry(loaded, ledger, engines, ResearchRequest(task=str(hill), trials=20, parallel=3))
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        made = {each.specialist for each in latest_trials(tx, run_id, limit=50)}
    assert run.status is RunStatus.COMPLETED, run.reason
    assert made == {"baseline", "tuner", "writer"}
