"""An overseer that is killed continues where it was, on either database, and pays for no session twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.runs import get_run
from ratchet.ledger.usage import list_sessions, total
from ratchet.ledger.workflows import list_workflows
from ratchet.memory import open_memory
from ratchet.modelserver import ModelServer, Turn, answer
from ratchet.runtime import Runtime, start_run
from ratchet.workflows.memory import find_plans
from ratchet.workflows.overseer import RUN_KIND, planned_of
from tests.runtime.deaths import die_at, places_passed
from tests.runtime.fleet import Fleet
from tests.waiting import eventually
from tests.workflows.overseer.conftest import write_home
from tests.workflows.overseer.plans import GOOD_SOURCE, circle, source, wants_a_tool

SENTENCE = "Turn a text into capitals"
SPEC = {
    "action": "plan",
    "sentence": SENTENCE,
    "name": None,
    "engine": "llm",
    "model": None,
    "reuse": True,
    "keep_tools": True,
}


def turns(*, again: bool) -> list[Turn]:
    """A plan that must be repaired, and a tool. What was lost with its process is asked for `again`."""
    first = [answer(circle())]
    return [*first, *(first if again else []), answer(wants_a_tool()), answer(source(GOOD_SOURCE))]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("url", "place", "again"),
    [
        ("sqlite", "session ended", True),
        ("sqlite", "session kept", False),
        ("sqlite", "remembered", False),
        ("postgresql", "session kept", False),
        ("postgresql", "remembered", False),
    ],
    indirect=["url"],
)
def test_a_plan_killed_at_any_stage_is_finished_and_no_recorded_session_is_paid_for_again(
    place: str,
    again: bool,
    runtime: Runtime,
    ledger: Ledger,
    fleet: Fleet,
    model_server: ModelServer,
    tmp_path: Path,
) -> None:
    script = write_home(tmp_path, model_server, *turns(again=again))
    die_at(tmp_path, place)
    fleet.add()
    with ledger.write() as tx:
        run_id = start_run(tx, runtime, "plan_mortally", kind=RUN_KIND, name="plan:capitals", spec=SPEC)
    eventually(lambda: not (tmp_path / "death").exists() or status(ledger, run_id).final)
    fleet.add()
    eventually(lambda: status(ledger, run_id).final)
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        assert run.status is RunStatus.COMPLETED, run.reason
        assert len(list_sessions(tx, run_id=run_id)) == 3
        # What the lost session used is known only if it was told in time.
        assert total(tx, "run", run_id).input_tokens in ((300, 400) if again else (300,))
        [saved] = list_workflows(tx)
    planned = planned_of(run)
    assert (planned.workflow, planned.hash) == (saved.name, saved.hash)
    assert (len(planned.repaired), planned.tools_generated) == (1, ("word_report_shout",))
    assert len(script.requests) == len(turns(again=again))
    assert places_passed(tmp_path).count("session ended") == len(turns(again=again))
    memory = open_memory(runtime.settings.memory, tmp_path)
    assert [each.workflow for each in find_plans(memory, SENTENCE)] == [saved.name]
    memory.close()


def status(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status
