"""Planning that is killed continues where it was, on either database, and pays for no session twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger.events import since
from ratchet.ledger.projects import get_project
from ratchet.ledger.protocols import get_protocol, list_protocol_steps
from ratchet.ledger.usage import list_sessions
from ratchet.modelserver import ModelServer, Turn, answer, hang
from ratchet.projects.clone import open_clone
from ratchet.runtime import Runtime, cancel_run
from tests.protocols.planning.conftest import NAME, Desk, start_planning, write_settings
from tests.protocols.planning.plans import plan, step
from tests.protocols.world import git, make_project, make_remote
from tests.runtime.deaths import die_at, places_passed
from tests.runtime.fleet import Fleet
from tests.waiting import eventually


def turns(*, again: bool) -> list[Turn]:
    """A plan that must be repaired, and a step that is taken apart. What was lost is asked for `again`."""
    first = [answer(plan(step("01-a.md", depends_on=["07-nowhere.md"])))]
    good = answer(plan(step("01-a.md", needs_decomposition=True)))
    return [*first, *(first if again else []), good, answer({"content": "1. In parts"})]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("url", "place", "again"),
    [
        ("sqlite", "begun", False),
        ("sqlite", "session ended", True),
        ("sqlite", "session kept", False),
        ("sqlite", "committed", False),
        ("postgresql", "session kept", False),
        ("postgresql", "committed", False),
    ],
    indirect=["url"],
)
def test_planning_killed_at_any_stage_is_finished_and_no_recorded_session_is_paid_for_again(
    place: str,
    again: bool,
    runtime: Runtime,
    ledger: Ledger,
    fleet: Fleet,
    model_server: ModelServer,
    tmp_path: Path,
) -> None:
    script = write_settings(tmp_path, model_server, *turns(again=again))
    project_id = make_project(runtime, make_remote(tmp_path))
    die_at(tmp_path, place)
    fleet.add()
    with ledger.write(actor="test") as tx:
        run_id = start_planning(tx, runtime, project_id)
    eventually(lambda: not (tmp_path / "death").exists())
    fleet.add()
    eventually(lambda: status(ledger, run_id) is not RunStatus.PLANNING)
    with ledger.read() as tx:
        planned = get_protocol(tx, run_id)
        assert planned.status is RunStatus.PLANNED, planned.reason
        assert len(list_sessions(tx, run_id=run_id)) == 3
        assert [each.name for each in list_protocol_steps(tx, run_id)] == ["00-setup", "01-a"]
        [told] = since(tx.connection, where=EventFilter(run_id=run_id, type="planned"))
        project = get_project(tx, project_id)
    assert len(script.requests) == len(turns(again=again))
    assert places_passed(tmp_path).count("session ended") == len(turns(again=again))
    with open_clone(runtime, project) as clone:
        assert git(clone.path, "rev-parse", NAME) == told.data["commit"]
        assert git(clone.path, "rev-list", "--count", f"{planned.base_commit}..{NAME}") == "1"
        assert git(clone.path, "show", f"{NAME}:.protocols/{NAME}/01-a.md") == "1. In parts"


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_planning_that_is_cancelled_ends_at_once_and_leaves_no_steps(desk: Desk) -> None:
    script = desk.open(hang())
    with desk.runtime.ledger.write(actor="test") as tx:
        run_id = start_planning(tx, desk.runtime, desk.project_id)
    eventually(lambda: len(script.requests) == 1)
    with desk.runtime.ledger.write(actor="test") as tx:
        cancel_run(tx, desk.runtime, run_id)
    cancelled = desk.look(run_id)
    assert cancelled.status is RunStatus.CANCELLED
    assert (desk.steps(cancelled), cancelled.spec) == ([], None)


def status(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_protocol(tx, run_id).status
