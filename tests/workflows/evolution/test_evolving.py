"""A tool is rewritten, judged, and replaced only by what proves better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.cli.operation import CliCall
from ratchet.cli.session import CliSession
from ratchet.kernel import Conflict, Misuse, NotFound, RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.runs import list_steps
from ratchet.ledger.tools import (
    CallRow,
    Source,
    ToolVersionStatus,
    add_tool,
    add_version,
    find_version,
    get_tool,
    get_version,
    pin_version,
    promote_version,
    record_calls,
)
from ratchet.ledger.usage import total
from ratchet.runtime import Runtime
from ratchet.tools.definition import read_tool
from ratchet.workflows.evolution import approve_version, evolve_tool, roll_back_tool
from ratchet.workflows.tool_operations import certificate
from tests.runtime.deaths import places_passed
from tests.waiting import eventually
from tests.workflows.evolution.lab import (
    INPUTS,
    NAME,
    completed,
    current,
    prepared,
    put_calls,
    put_other_version,
    put_tool,
    settled,
    versions,
)
from tests.workflows.evolution.rewriter import COST_MICROUSD, prompts
from tests.workflows.evolution.ten import TEN, TenthTool

# What the databases differ in is tried where processes are killed.
pytestmark = [pytest.mark.usefixtures("worker"), pytest.mark.parametrize("url", ["sqlite"], indirect=True)]


def test_a_promotion_has_its_certificate_and_the_first_version_has_none(
    runtime: Runtime, ledger: Ledger
) -> None:
    prepared(ledger)
    call = CliCall(CliSession(), ledger, runtime)
    with pytest.raises(NotFound, match="certificate"):
        certificate(call, NAME)
    verdict = {"outcome": "passed", "reason": "half the time", "improvement": 0.5, "measurements": {}}
    verdict |= {"judge_hash": "j", "report": None, "summary": "direct", "engine": "llm", "commit": "c"}
    with ledger.write() as tx:
        row = get_tool(tx, NAME)
        before = get_version(tx, row.current_id or 0)
        made = add_version(tx, row, before.definition, "0" * 64, origin="evolved", parent_id=before.id)
        promote_version(
            tx, row, made, expected=before.id, reason="half the time", verdict={**verdict, "attempt_id": 1}
        )
    shown = certificate(call, NAME)
    assert (shown.version, shown.parent, shown.verdict) == (made.version, before.version, "half the time")
    assert (len(shown.patch_sha256), shown.cost["cost_microusd"]) == (64, 0)


def evolve(runtime: Runtime, variants: str, **more: Any) -> int:
    return evolve_tool(runtime, NAME, engine=f"rewriter:{variants}", actor="test", **more)


@pytest.mark.soak
@pytest.mark.parametrize("way", ["", "speaks,"])
def test_a_faster_variant_is_promoted_with_its_numbers_and_its_parent(
    way: str, runtime: Runtime, ledger: Ledger
) -> None:
    prepared(ledger)
    before = current(ledger)
    run = completed(ledger, evolve(runtime, f"{way}direct"))
    after = current(ledger)
    assert run.result["promoted"]
    assert (after.parent_id, after.origin, after.run_id) == (before.id, "evolved", run.id)
    assert after.version == "1.1.0" == run.result["version"]
    assert after.definition["type"] == before.definition["type"]
    assert after.definition["examples"] == before.definition["examples"]
    assert after.verdict["improvement"] > 0.5
    assert after.verdict["measurements"]["cpu_ms.gain"] > 0.5
    with ledger.read() as tx:
        assert total(tx, "run", run.id).cost_microusd == COST_MICROUSD
    shown = certificate(CliCall(CliSession(), ledger, runtime), NAME)
    assert (shown.version, shown.parent, shown.outcome) == ("1.1.0", before.version, "passed")
    assert shown.proposed_by["run"] == run.id
    assert shown.judge_hash == after.verdict["judge_hash"]
    assert shown.cost["cost_microusd"] == COST_MICROUSD


REFUSALS = {
    "reformatted": "changes nothing",
    "as slow": "not clearly better",
    "slower": "not clearly better",
    "subtly wrong": "fails 2 of 2 held-out inputs",
    "knows the example": "fails 2 of 2 held-out inputs",
    # It may start no such process, or that is killed with it: it does not slow down the other side either way.
    "burns": "it ",
    "crashes": "RuntimeError: no",
    "no python": "SyntaxError",
    # The sandbox shows a variant nothing of where real inputs and their answers are kept.
    "peeks": "No such file or directory",
}


@pytest.mark.soak
def test_variants_that_are_no_better_are_refused_each_with_its_reason(
    runtime: Runtime, ledger: Ledger
) -> None:
    prepared(ledger)
    before = current(ledger)
    run = completed(ledger, evolve(runtime, ",".join(REFUSALS)))
    assert not run.result["promoted"]
    assert current(ledger).id == before.id
    refused = {row.verdict["summary"]: row for row in versions(ledger)[1:]}
    assert refused.keys() == {f"tried {name}" for name in REFUSALS}
    for name, reason in REFUSALS.items():
        row = refused[f"tried {name}"]
        assert reason in str(row.reason), name
        assert (row.status, row.parent_id) == (ToolVersionStatus.REFUSED, before.id)
        assert row.verdict["improvement"] == 0.0


@pytest.mark.soak
def test_a_difference_on_a_generated_input_needs_an_approval(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    before = current(ledger)
    run = completed(ledger, evolve(runtime, "wrong for one"))
    assert not run.result["promoted"]
    assert (
        'to {"n": 1} it gives {"sum": 1}, the version in use {"sum": 0}' in run.result["tries"][0]["reason"]
    )
    with pytest.raises(Conflict, match="cannot be approved"):
        approve_version(runtime, NAME, before.version, actor="ann")
    refused = versions(ledger)[1]
    approve_version(runtime, NAME, refused.version, actor="ann")
    assert current(ledger).id == refused.id
    assert str(current(ledger).reason).startswith("approved by ann: it is better")


@pytest.mark.soak
def test_the_very_same_code_is_no_version_and_no_improvement(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    run = completed(ledger, evolve(runtime, "same"))
    assert {each["improvement"] for each in run.result["tries"]} == {0.0}
    assert "changes nothing" in run.result["why"]
    assert len(versions(ledger)) == 1


@pytest.mark.soak
def test_what_only_the_judge_may_know_is_in_no_prompt(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    completed(ledger, evolve(runtime, "crashes,subtly wrong,direct"))
    for prompt in prompts(runtime.home):
        assert '{"n": 10}' in prompt
        assert not any(str(n) in prompt for n in INPUTS)


@pytest.mark.soak
def test_the_author_is_told_what_was_tried_and_what_came_of_it(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    completed(ledger, evolve(runtime, "slower,subtly wrong,direct", why="it takes too long"))
    first, second, third = prompts(runtime.home)
    assert "it takes too long" in first
    assert "tried slower" not in first
    assert "tried slower — refused: it is not clearly better" in second
    assert "cpu_ms -" in second
    assert "tried subtly wrong — refused: it fails 2 of 2 held-out inputs" in third
    assert current(ledger).verdict["summary"] == "tried direct"


@pytest.mark.soak
def test_a_variant_that_was_refused_is_not_measured_until_it_looks_better(
    runtime: Runtime, ledger: Ledger
) -> None:
    prepared(ledger)
    run = completed(ledger, evolve(runtime, "as slow"))
    first, second, *_ = run.result["tries"]
    assert first["measurements"]["rounds"] >= 2
    assert second["measurements"]["rounds"] == 0
    assert "tried before" in second["reason"]
    assert "tried before" not in str(versions(ledger)[1].reason)


@pytest.mark.soak
def test_a_pinned_tool_is_not_rewritten(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    with ledger.write() as tx:
        pin_version(tx, get_tool(tx, NAME), current(ledger))
    with pytest.raises(Conflict, match=r"is pinned to 1\.0\.0"):
        evolve(runtime, "direct")


@pytest.mark.soak
def test_a_tool_that_is_pinned_while_it_is_rewritten_stays_as_it_is(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    (runtime.home / "gate").touch()
    run_id = evolve(runtime, "gated,direct")
    _await_session(runtime.home)
    with ledger.write() as tx:
        pin_version(tx, get_tool(tx, NAME), current(ledger))
    (runtime.home / "gate").unlink()
    run = completed(ledger, run_id)
    assert not run.result["promoted"]
    assert "pinned meanwhile" in run.result["tries"][0]["reason"]


@pytest.mark.soak
def test_a_version_that_came_into_use_meanwhile_is_not_replaced(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    (runtime.home / "gate").touch()
    run_id = evolve(runtime, "gated,direct")
    _await_session(runtime.home)
    with ledger.write() as tx:
        other = put_other_version(tx)
    (runtime.home / "gate").unlink()
    completed(ledger, run_id)
    assert current(ledger).id == other.id


@pytest.mark.soak
def test_a_promotion_can_be_taken_back_and_is_not_made_again(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    first = current(ledger)
    completed(ledger, evolve(runtime, "direct"))
    second = current(ledger)
    assert roll_back_tool(runtime, NAME, reason="wrong after all", actor="test").id == first.id
    run = completed(ledger, evolve(runtime, "direct"))
    assert "wrong after all" in run.result["why"]
    assert current(ledger).id == first.id
    with ledger.read() as tx:
        taken_back = find_version(tx, first.tool_id, second.hash)
    assert taken_back is not None
    assert taken_back.status is ToolVersionStatus.ROLLED_BACK


@pytest.mark.soak
def test_a_variant_of_a_promoted_version_is_tried_on_what_came_before_it(
    runtime: Runtime, ledger: Ledger
) -> None:
    """The new version has no calls yet, but the inputs of the one it was made from are as real."""
    prepared(ledger)
    completed(ledger, evolve(runtime, "direct"))
    completed(ledger, evolve(runtime, "subtly wrong"))
    first, second, third = versions(ledger)
    assert (second.parent_id, third.parent_id) == (first.id, second.id)
    assert "fails 2 of 2 held-out inputs" in str(third.reason)
    assert current(ledger).id == second.id


@pytest.mark.soak
def test_the_tests_that_a_tool_brings_with_it_must_pass(
    runtime: Runtime, ledger: Ledger, tmp_path: Path
) -> None:
    """Small numbers are in no example and no real input, but in the tests."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "check.py").write_text(
        "import tool\n\n\ndef test_one():\n    assert tool.run(1) == {'sum': 0}\n"
    )
    prepared(ledger, source_file=str(folder / "add-up.yaml"), tests="check.py")
    run = completed(ledger, evolve(runtime, "wrong for one,direct"))
    first, second = run.result["tries"]
    assert "tests do not pass" in first["reason"]
    assert second["promoted"]


@pytest.mark.soak
def test_a_tool_without_real_inputs_cannot_be_judged(runtime: Runtime, ledger: Ledger) -> None:
    with ledger.write() as tx:
        tool, _ = put_tool(tx)
        # That is an example, which the author knows.
        put_calls(tx, tool, inputs=[10])
        put_calls(tx, tool, ok=False)
    with pytest.raises(Misuse, match="no real input"):
        evolve(runtime, "direct")


@pytest.mark.soak
def test_tools_that_reach_outside_are_not_called_again_for_a_trial(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger, network=True)
    with pytest.raises(Misuse, match="uses the network"):
        evolve(runtime, "direct")


@pytest.mark.soak
def test_a_tool_that_does_not_exist_is_not_found(runtime: Runtime) -> None:
    with pytest.raises(NotFound, match="add-up"):
        evolve(runtime, "direct")


@pytest.mark.soak
def test_a_run_that_nobody_could_try_anything_in_has_failed(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    run = settled(ledger, evolve_tool(runtime, NAME, engine="rewriter:absent", actor="test"))
    assert (run.status, run.reason) == (RunStatus.FAILED, "nobody is there")
    with ledger.read() as tx:
        assert [step.name for step in list_steps(tx, run.id)] == ["begin", "try 1"]


@pytest.mark.soak
def test_a_recording_moves_no_tool_in_a_run_that_is_no_simulation(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    before = current(ledger)
    run = settled(ledger, evolve(runtime, "recorded,direct"))
    assert run.status is RunStatus.FAILED
    assert current(ledger).id == before.id
    run = completed(ledger, evolve(runtime, "recorded,direct", simulated=True))
    assert run.result["promoted"]
    assert current(ledger).simulated


WRONG_ONES = [tool for tool in TEN if tool.comes_to == "repaired"]


@pytest.mark.soak
@pytest.mark.parametrize("wrong", WRONG_ONES, ids=[tool.name for tool in WRONG_ONES])
def test_a_wrong_tool_is_repaired_whatever_else_its_author_proposes(
    wrong: TenthTool, runtime: Runtime, ledger: Ledger
) -> None:
    """Every call went well, as far as anybody knew."""
    tool = read_tool(wrong.definition, folder=None)
    with ledger.write() as tx:
        row = add_tool(tx, wrong.name, Source("tests"))
        version = add_version(tx, row, tool.data, tool.hash)
        promote_version(tx, row, version, expected=None)
        calls = [CallRow(row.id, version.id, True, 1.0, tx.now, input=each) for each in wrong.calls]
        record_calls(tx, calls)
    proposed = ",".join(f"{wrong.name}/{name}" for name in wrong.variants)
    run = completed(ledger, evolve_tool(runtime, wrong.name, engine=f"rewriter:{proposed}", actor="test"))
    assert run.result["promoted"]
    assert [each["promoted"] for each in run.result["tries"]] == [False] * len(wrong.wrong) + [True]
    assert current(ledger, wrong.name).definition["python"]["source"] == wrong.right


def _await_session(home: Path) -> None:
    eventually(lambda: "before the session" in places_passed(home))
