"""Plans that were made before are used again or shown, always visibly, and what failed before is told."""

from __future__ import annotations

import contextlib
import json

import pytest

from ratchet.kernel import RunStatus
from ratchet.memory import open_memory
from ratchet.modelserver import Turn, answer, fail, say
from ratchet.workflows.memory import remember_plan
from tests.workflows.overseer.conftest import Desk
from tests.workflows.overseer.plans import GOOD_SOURCE, circle, count_with, plan, source, step, wants_a_tool

only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
COUNT = "Count the words of a text"
GOOD = answer(count_with("tally_words"))


@pytest.mark.soak
def test_the_same_sentence_is_answered_without_a_model_and_says_so_even_after_a_restart(desk: Desk) -> None:
    desk.open(GOOD)
    first = desk.plan(COUNT)
    script = desk.open()
    second = desk.plan(f"  {COUNT}\n")
    assert script.requests == []
    assert (second.workflow, second.hash) == (first.workflow, first.hash)
    assert second.usage.tokens == 0
    assert second.reused is not None
    assert second.reused.exact
    [told] = desk.events(second.run_id, "workflow.reused")
    assert told == {
        "workflow": first.workflow,
        "likeness": 1.0,
        "sentence": COUNT,
        "reason": "the same sentence was planned before",
    }
    assert desk.sessions(second.run_id) == []
    assert len(desk.saved()) == 1


@only_sqlite
def test_a_sentence_that_means_nearly_the_same_uses_the_plan_again_if_the_overseer_says_that_it_fits(
    desk: Desk,
) -> None:
    script = desk.open(GOOD, answer({"fits": True, "why": "it counts words"}))
    first = desk.plan(COUNT)
    second = desk.plan("Count how many words a text has")
    assert len(script.requests) == 2
    assert '"steps.count.output"' in script.requests[1].said
    assert second.workflow == first.workflow
    assert second.reused is not None
    assert not second.reused.exact
    assert 0.9 <= second.reused.likeness < 1
    assert second.reused.sentence == COUNT
    assert "nearly the same" in second.reused.reason


@only_sqlite
@pytest.mark.parametrize("no", [answer({"fits": False, "why": "it is the opposite"}), say("perhaps")])
def test_a_plan_that_is_not_confirmed_is_not_used_again(desk: Desk, no: Turn) -> None:
    script = desk.open(GOOD, no, answer(plan(step("other"))))
    first = desk.plan(COUNT)
    second = desk.plan("Count how many words a text has")
    assert second.reused is None
    assert second.workflow != first.workflow
    assert len(script.requests) == 3


@only_sqlite
def test_the_opposite_of_a_sentence_is_planned_without_a_question_whether_the_plan_fits(desk: Desk) -> None:
    script = desk.open(GOOD, answer(plan(step("other"))))
    first = desk.plan("Remove duplicate names from a list of names")
    second = desk.plan("Do NOT remove duplicate names from a list of names")
    assert (second.reused, second.template) == (None, first.workflow)
    assert len(script.requests) == 2


@pytest.mark.soak
@only_sqlite
@pytest.mark.parametrize(
    ("before", "now"),
    [
        (f"{COUNT} and sort them by length", f"{COUNT} and sort them alphabetically"),
        # Nearer than that, but about another number.
        ("Summarise the 5 newest articles about dogs", "Summarise the 10 newest articles about dogs"),
    ],
)
def test_a_plan_that_is_only_similar_is_shown_to_the_overseer(desk: Desk, before: str, now: str) -> None:
    script = desk.open(GOOD, answer(plan(step("other"))))
    first = desk.plan(before)
    second = desk.plan(now)
    assert (second.reused, second.template) == (None, first.workflow)
    said = script.requests[1].said
    assert "A plan that was made for a similar request" in said
    assert before in said
    assert '"steps.count.output"' in said
    assert "A plan that was made" not in script.requests[0].said
    [prepared] = desk.events(second.run_id, "workflow.prepared")
    assert prepared["template"] == first.workflow
    assert prepared["likeness"] >= 0.8


@pytest.mark.soak
@only_sqlite
def test_how_like_a_plan_must_be_is_a_setting(desk: Desk) -> None:
    desk.open(GOOD)
    desk.plan(COUNT)
    strict = {"workflows.reuse": 0.99, "workflows.template": 0.99}
    script = desk.open(answer(plan(step("other"))), **strict)
    planned = desk.plan("Count how many words a text has")
    assert (planned.reused, planned.template) == (None, None)
    loose = {"workflows.reuse": 0.4}
    script = desk.open(answer({"fits": True, "why": "near enough"}), **loose)
    assert desk.plan("Count the letters of a text").reused is not None
    assert len(script.requests) == 1


@pytest.mark.soak
@only_sqlite
def test_whoever_wants_a_new_plan_gets_one_that_owes_nothing_to_the_old(desk: Desk) -> None:
    script = desk.open(GOOD, answer(plan(step("other"))))
    desk.plan(COUNT)
    planned = desk.plan(COUNT, reuse=False)
    assert (planned.reused, planned.template) == (None, None)
    assert "A plan that was made" not in script.requests[1].said
    # From now on it is the plan of this sentence.
    assert desk.plan(COUNT).workflow == planned.workflow


@pytest.mark.soak
@only_sqlite
def test_a_plan_whose_tool_is_gone_is_not_used_again(desk: Desk) -> None:
    desk.open(GOOD)
    desk.plan(COUNT)
    script = desk.open(answer(plan(step("other"))))
    (desk.home / "tools" / "tally_words.yaml").unlink()
    planned = desk.plan(COUNT)
    assert (planned.reused, planned.template) == (None, None)
    assert len(script.requests) == 1


@pytest.mark.soak
@only_sqlite
def test_what_failed_and_what_mended_it_is_told_to_the_next_overseer(desk: Desk) -> None:
    script = desk.open(answer(circle()), answer(circle()), GOOD, GOOD, **{"workflows.repairs": 1})
    failed = desk.run(COUNT)
    assert failed.status is RunStatus.FAILED
    problem = failed.result["problems"][0]
    desk.plan(COUNT)
    told = script.requests[2].said
    assert "What earlier plans taught" in told
    assert problem in told
    script = desk.open(answer(circle()), GOOD, answer(plan(step("other"))))
    desk.plan(COUNT, reuse=False)
    desk.plan(f"{COUNT} in French", reuse=False)
    assert "What fixed it: a plan with the steps count, say" in script.requests[2].said


@pytest.mark.soak
@only_sqlite
def test_a_memory_that_cannot_be_used_costs_no_plan(desk: Desk) -> None:
    script = desk.open(GOOD)
    (desk.home / "memory.db").write_bytes(b"this is no memory" * 1000)
    planned = desk.plan(COUNT)
    assert planned.workflow == "word_report"
    assert any("memory" in note for note in planned.notes)
    assert '"tally_words"' in script.requests[0].said


@pytest.mark.soak
@only_sqlite
def test_an_example_has_its_tools_written_again(desk: Desk) -> None:
    before, now = f"{COUNT} and sort them by length", f"{COUNT} and sort them alphabetically"
    script = desk.open(answer(wants_a_tool()), answer(source(GOOD_SOURCE)), GOOD)
    desk.plan(before)
    assert desk.plan(now).template == "word_report"
    [line] = [each for each in script.requests[2].said.splitlines() if before in each]
    [shown] = json.loads(line)["plan"]["steps"]
    assert shown["generate_tool"] is True
    assert "tool" not in shown
    assert "upper" not in line


@pytest.mark.soak
@only_sqlite
def test_a_workflow_of_the_same_name_that_another_ledger_remembers_is_not_taken(desk: Desk) -> None:
    script = desk.open(GOOD, answer(plan(step("other"))))
    desk.plan(COUNT)
    with contextlib.closing(open_memory(desk.runtime.settings.memory, desk.home)) as memory:
        remember_plan(memory, "Bake a cake", "word_report", "f" * 64)
    assert desk.plan("Bake a cake").reused is None
    assert len(script.requests) == 2


@pytest.mark.soak
@only_sqlite
def test_a_failure_that_has_nothing_to_do_with_the_plan_teaches_nothing(desk: Desk) -> None:
    script = desk.open(fail(401, message="no such key"), GOOD)
    assert desk.run(COUNT).status is RunStatus.BLOCKED
    desk.plan(COUNT)
    assert "no such key" not in script.requests[1].said
