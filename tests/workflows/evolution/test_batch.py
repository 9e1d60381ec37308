"""A night of optimisation: what is worth it most, until the money or the time is gone."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.config.workflow_settings import Evolution
from ratchet.kernel import Misuse, RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.runs import list_runs
from ratchet.ledger.tools import get_tool, note_examples, pin_version
from ratchet.runtime import Runtime
from ratchet.workflows.evolution import find_opportunities, optimise_batch
from ratchet.workflows.jobs import OPTIMISE
from tests.runtime.conftest import ended
from tests.runtime.deaths import places_passed
from tests.waiting import eventually
from tests.workflows.evolution.lab import completed, current, put_calls, put_tool, settled, versions
from tests.workflows.evolution.rewriter import COST_MICROUSD
from tests.workflows.evolution.variants import WRONG

pytestmark = [pytest.mark.usefixtures("worker"), pytest.mark.parametrize("url", ["sqlite"], indirect=True)]
SESSION_USD = COST_MICROUSD / 1_000_000


def put_used(ledger: Ledger, name: str, *, score: float, times: int = 4, **more: Any) -> None:
    """A tool with real calls that were not good."""
    with ledger.write() as tx:
        tool, _ = put_tool(tx, name, **more)
        put_calls(tx, tool, score=score, times=times)


def optimise(runtime: Runtime, **more: Any) -> int:
    return optimise_batch(runtime, actor="test", **{"engine": "rewriter:direct", **more})


@pytest.mark.soak
def test_tools_are_taken_by_how_much_they_are_used_and_what_they_lack(ledger: Ledger) -> None:
    put_used(ledger, "used-much", score=0.74, times=20)
    put_used(ledger, "quite-bad", score=0.1)
    put_used(ledger, "good", score=0.9)
    put_used(ledger, "hardly-used", score=0.1, times=1)
    put_used(ledger, "online", score=0.1, network=True)
    put_used(ledger, "pinned", score=0.1)
    with ledger.write() as tx:
        pin_version(tx, get_tool(tx, "pinned"), versions(ledger, "pinned")[0])
    with ledger.read() as tx:
        found = find_opportunities(tx, Evolution(), tx.now)
    assert [each.tool for each in found] == ["used-much", "quite-bad"]
    assert found[0].value == pytest.approx(60 * 0.26)
    assert "below" in found[1].why


def test_a_tool_that_fails_its_examples_is_taken_first_however_well_its_calls_went(ledger: Ledger) -> None:
    put_used(ledger, "quite-bad", score=0.1, times=20)
    with ledger.write() as tx:
        tool, version = put_tool(tx, "broken")
        put_calls(tx, tool)
        note_examples(tx, version.id, 1)
    with ledger.read() as tx:
        found = find_opportunities(tx, Evolution(), tx.now)
    assert [(each.tool, each.broken) for each in found] == [("broken", True), ("quite-bad", False)]
    assert found[0].why == "it is broken: 1 of its 1 examples fail"


@pytest.mark.soak
def test_a_batch_runs_examples_that_were_never_run_and_repairs_what_fails_them(
    runtime: Runtime, ledger: Ledger
) -> None:
    """Its calls all went well, and it was never called often."""
    with ledger.write() as tx:
        put_tool(tx, "broken", source=WRONG)
    run = completed(ledger, optimise(runtime, engine="rewriter:as wrong,direct"))
    assert run.result["promoted"] == ["broken"]
    assert "1 of its examples pass instead of 0" in str(current(ledger, "broken").reason)


@pytest.mark.soak
def test_a_batch_promotes_what_is_better_and_says_what_it_did(runtime: Runtime, ledger: Ledger) -> None:
    put_used(ledger, "one", score=0.72)
    put_used(ledger, "two", score=0.71)
    run = completed(ledger, optimise(runtime, budget_usd=1.0))
    assert run.result["promoted"] == ["two", "one"]
    assert run.result["left"] == []
    assert run.result["spent_usd"] == pytest.approx(2 * SESSION_USD)
    # Both were just looked at and have no calls yet.
    again = completed(ledger, optimise(runtime))
    assert again.result["tools"] == []


@pytest.mark.soak
def test_a_batch_stops_when_its_money_is_gone(runtime: Runtime, ledger: Ledger) -> None:
    for name in ("one", "two", "three"):
        put_used(ledger, name, score=0.71)
    run = completed(ledger, optimise(runtime, budget_usd=SESSION_USD, engine="rewriter:crashes"))
    assert "is used up" in run.result["stopped"]
    assert [each["tool"] for each in run.result["tools"]] == ["one"]
    assert run.result["left"] == ["three", "two"]
    assert places_passed(runtime.home).count("after the session") == 1


@pytest.mark.soak
def test_a_batch_stops_when_its_time_is_over(runtime: Runtime, ledger: Ledger) -> None:
    put_used(ledger, "one", score=0.71)
    run = completed(ledger, optimise(runtime, seconds=0.000_001))
    assert (run.result["stopped"], run.result["left"]) == ("the time is over", ["one"])
    assert places_passed(runtime.home) == []


@pytest.mark.soak
def test_a_batch_in_which_nobody_could_try_anything_has_failed(runtime: Runtime, ledger: Ledger) -> None:
    put_used(ledger, "one", score=0.71)
    run = settled(ledger, optimise(runtime, engine="rewriter:absent"))
    assert (run.status, run.reason) == (RunStatus.FAILED, "nobody is there")


@pytest.mark.soak
def test_what_a_schedule_fires_starts_a_batch(runtime: Runtime, ledger: Ledger) -> None:
    put_used(ledger, "one", score=0.71)
    payload = {"budget_usd": 1.0, "engine": "rewriter:direct"}
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, OPTIMISE, payload)
    started = ended(ledger, job_id)
    run = completed(ledger, started.result["run_id"])
    assert run.result["promoted"] == ["one"]
    with ledger.read() as tx:
        assert [each.id for each in list_runs(tx, name="optimise")] == [run.id]


@pytest.mark.soak
@pytest.mark.parametrize("wrong", [{"budget_usd": 0.0}, {"seconds": -1.0}, {"most": 0}])
def test_a_batch_that_could_do_nothing_is_refused(wrong: dict[str, Any], runtime: Runtime) -> None:
    with pytest.raises(Misuse, match="must be above 0"):
        optimise(runtime, **wrong)


@pytest.mark.soak
def test_a_schedule_with_an_unknown_word_fails_and_names_it(runtime: Runtime, ledger: Ledger) -> None:
    with ledger.write() as tx:
        job_id = runtime.enqueue(tx, OPTIMISE, {"budget": 5})
    eventually(lambda: "a batch knows no budget" in (ended(ledger, job_id).error or ""))
