"""Plans from a recording are marked wherever they are shown, and are no part of real life."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.replay import Recording
from ratchet.kernel import RunStatus
from ratchet.modelserver import answer
from tests.workflows.overseer.conftest import Desk
from tests.workflows.overseer.plans import GOOD_SOURCE, source, wants_a_tool

only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
SHOUT = "Turn a text into capitals"


def record(desk: Desk, cassette: Path) -> None:
    """Let a real plan with a tool of its own be recorded."""
    desk.open(answer(wants_a_tool()), answer(source(GOOD_SOURCE)))
    real = open_engine("llm", EngineContext(desk.runtime.settings, desk.home, {}))
    desk.open(answer(wants_a_tool()), answer(source(GOOD_SOURCE)), engine=Recording(real, cassette))
    desk.plan(SHOUT, reuse=False)


@pytest.mark.soak
@only_sqlite
def test_a_recorded_plan_is_made_again_without_a_model_marked_and_not_remembered(
    desk: Desk, tmp_path: Path
) -> None:
    record(desk, tmp_path / "tape.jsonl")
    script = desk.open()
    planned = desk.plan(SHOUT, reuse=False, engine=f"replay:{tmp_path / 'tape.jsonl'}", simulated=True)
    assert script.requests == []
    assert planned.simulated
    assert desk.look(planned.run_id).used_recording
    saved = {each.name: each.origin for each in desk.saved()}
    assert saved == {"word_report": "overseer", planned.workflow: "simulated"}
    again = desk.plan(SHOUT)
    assert (again.workflow, again.simulated) == ("word_report", False)


@pytest.mark.soak
@only_sqlite
def test_a_recording_plans_nothing_in_a_run_that_is_no_simulation(desk: Desk, tmp_path: Path) -> None:
    record(desk, tmp_path / "tape.jsonl")
    desk.open()
    run = desk.run(SHOUT, reuse=False, engine=f"replay:{tmp_path / 'tape.jsonl'}")
    assert run.status is RunStatus.FAILED
    assert "no simulation" in (run.reason or "")
    assert len(desk.saved()) == 1
