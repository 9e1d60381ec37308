"""A run that is killed anywhere continues where it was, on either database."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.ledger import Ledger
from ratchet.ledger.tools import ToolVersionStatus
from ratchet.ledger.usage import list_sessions, total
from ratchet.runtime import Runtime, start_run
from tests.runtime.deaths import die_at, places_passed
from tests.runtime.fleet import Fleet
from tests.waiting import eventually
from tests.workflows.evolution.conftest import QUICK
from tests.workflows.evolution.lab import NAME, completed, current, prepared, put_calls, put_tool, versions
from tests.workflows.evolution.rewriter import COST_MICROUSD, IN_JUDGE

PLACES = (
    "after the session",
    IN_JUDGE,
    f"{NAME}: judged",
    f"{NAME}: recorded",
)


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
def test_a_killed_run_pays_for_no_session_twice_and_promotes_once(
    place: str, runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    prepared(ledger)
    first = current(ledger)
    die_at(runtime.home, place)
    add_worker(fleet)
    spec = {"tool": NAME, "engine": "rewriter:direct"}
    with ledger.write() as tx:
        run_id = start_run(tx, runtime, "evolve_mortally", kind="workflow", name=f"evolve:{NAME}", spec=spec)
    await_death(runtime.home, place)
    assert current(ledger).id == first.id or place == f"{NAME}: recorded"

    add_worker(fleet)
    run = completed(ledger, run_id)
    second = current(ledger)
    assert (run.result["promoted"], run.result["version"]) == (True, second.version)
    assert [row.status for row in versions(ledger)] == [ToolVersionStatus.PROMOTED] * 2
    assert (second.parent_id, second.run_id) == (first.id, run_id)
    with ledger.read() as tx:
        assert len(list_sessions(tx, run_id=run_id)) == 1
        assert total(tx, "run", run_id).cost_microusd == COST_MICROUSD
    # A session is held again only if its process died before what it left was recorded.
    held = places_passed(runtime.home).count("after the session")
    assert held == (2 if place == "after the session" else 1)


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_killed_batch_goes_on_with_the_tool_it_was_at(
    runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    with ledger.write() as tx:
        for name in ("one", "two"):
            tool, _ = put_tool(tx, name)
            put_calls(tx, tool, score=0.71, times=10 if name == "one" else 5)
    die_at(runtime.home, "two: judged")
    add_worker(fleet)
    with ledger.write() as tx:
        spec = {"engine": "rewriter:direct"}
        run_id = start_run(tx, runtime, "optimise_mortally", kind="workflow", name="optimise", spec=spec)
    await_death(runtime.home, "two: judged")
    add_worker(fleet)
    run = completed(ledger, run_id)
    assert run.result["promoted"] == ["one", "two"]
    assert places_passed(runtime.home).count("after the session") == 2
    with ledger.read() as tx:
        assert len(list_sessions(tx, run_id=run_id)) == 2


def add_worker(fleet: Fleet) -> None:
    fleet.add(**{key.replace(".", "__"): value for key, value in QUICK.items()})


def await_death(home: Path, place: str) -> None:
    eventually(lambda: place in places_passed(home) and not (home / "death").exists())
