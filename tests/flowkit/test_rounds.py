"""Steps that are repeated until a condition holds, and the pauses between tries."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.flowkit.execution import QuietJournal, Result, StepError
from ratchet.flowkit.executor import pause_before
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import AtLimit, Repeat, StepType, WorkflowInput, WorkflowOutput, WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.flowkit.writer import write_spec

from .callers import Functions, step, workflow
from .test_executor import run


def grow(draft: dict[str, Any] | None, by: int = 1) -> dict[str, Any]:
    return {"size": (draft or {"size": 0})["size"] + by}


GROWING = Functions({"grow": grow, "double": lambda n: n * 2})


def growing(**more: Any) -> WorkflowSpec:
    repeat = Repeat(**{"until": "last.size >= inputs.wanted", "limit": 5, **more})
    return workflow(
        step("polish", "grow", repeat=repeat, input_mapping={"draft": "last", "by": "inputs.by"}),
        step("tell", "double", input_mapping={"n": "steps.polish.output.size"}),
        inputs=(WorkflowInput("wanted", "integer"), WorkflowInput("by", "integer", default=1)),
        outputs=(WorkflowOutput("twice", source_reference="steps.tell.output"),),
    )


def test_a_step_is_repeated_with_its_last_value_until_the_condition_holds() -> None:
    done = run(growing(), GROWING, {"wanted": 3})

    assert (done.status, done.outputs) == ("completed", {"twice": 6})
    rounds = {name: record.value for name, record in done.steps.items() if name.startswith("polish[")}
    assert rounds == {"polish[0]": {"size": 1}, "polish[1]": {"size": 2}, "polish[2]": {"size": 3}}
    assert done.steps["polish"].metrics["rounds"] == 3


def test_the_first_round_begins_with_what_the_step_says() -> None:
    assert run(growing(start={"size": 10}), GROWING, {"wanted": 11}).outputs == {"twice": 22}


def test_a_condition_that_never_holds_fails_the_step_at_its_limit() -> None:
    done = run(growing(limit=2), GROWING, {"wanted": 9})

    assert done.status == "failed"
    assert done.steps["polish"].error == "after 2 rounds this does not hold: last.size >= inputs.wanted"
    assert done.steps["tell"].status == "skipped"


def test_the_last_value_is_kept_where_the_step_says_so() -> None:
    assert run(growing(limit=2, at_limit=AtLimit.KEEP), GROWING, {"wanted": 9}).outputs == {"twice": 4}


def test_a_round_that_fails_ends_the_step_with_its_number() -> None:
    spec = workflow(step("a", "refuse", repeat=Repeat("round > 3", 9), input_mapping={"n": "round"}))

    done = run(spec, Functions({"refuse": lambda n: 1 // (1 - n) if n < 1 else int("x")}))

    assert done.steps["a"].error is not None
    assert done.steps["a"].error.startswith("round 1: ValueError")


def test_each_item_of_a_list_has_rounds_of_its_own() -> None:
    spec = workflow(
        step(
            "a",
            "add",
            for_each=[1, 5],
            repeat=Repeat("last >= item", 9),
            input_mapping={"last": "last", "item": "item", "at": "index"},
        )
    )
    done = run(spec, Functions({"add": lambda last, item, at: (last or item - item) + 1 + at}))

    assert done.outputs == {"a": [1, 6]}
    assert {name for name in done.steps if name.startswith("a[1][")} == {"a[1][0]", "a[1][1]", "a[1][2]"}


def test_a_whole_workflow_can_be_repeated() -> None:
    inner = workflow(
        step("grow", "grow", input_mapping={"draft": "inputs.draft"}),
        inputs=(WorkflowInput("draft", "object", required=False),),
        outputs=(WorkflowOutput("draft", source_reference="steps.grow.output"),),
    )
    spec = workflow(
        step(
            "loop",
            None,
            step_type=StepType.SUB_WORKFLOW,
            workflow_spec=inner,
            input_mapping={"draft": "last.draft"},
            repeat=Repeat("last.draft.size == 3", 5),
        )
    )
    done = run(spec, GROWING)

    assert done.outputs == {"loop": {"draft": {"size": 3}}}
    assert "loop[2]/grow" in done.steps


def test_rounds_that_were_done_before_are_not_done_again() -> None:
    class Journal(QuietJournal):
        def finished(self, name: str) -> Result | StepError | None:
            return {"polish[0]": Result({"size": 1}), "polish[1]": Result({"size": 2})}.get(name)

    caller = Functions({"grow": grow, "double": lambda n: n * 2})
    done = run(growing(), caller, {"wanted": 3}, journal=Journal())

    assert done.outputs == {"twice": 6}
    assert [each for each in caller.order if each.endswith("begins")] == ["polish[2] begins", "tell begins"]


def test_names_of_rounds_are_plain_texts_in_other_steps() -> None:
    spec = workflow(step("a", "say", input_mapping={"where": "last", "x": "round"}))

    assert run(spec, Functions({"say": lambda where, x: [where, x]})).outputs == {"a": ["last", "round"]}


def test_a_repeated_step_is_written_and_read_again() -> None:
    spec = growing(start={"size": 1}, pause_seconds=2.5, at_limit=AtLimit.KEEP)

    assert read_spec(write_spec(spec)) == spec
    assert write_spec(spec)["steps"][0]["repeat"] == {
        "until": "last.size >= inputs.wanted",
        "limit": 5,
        "start": {"size": 1},
        "pause_seconds": 2.5,
        "at_limit": "keep",
    }


@pytest.mark.parametrize(
    ("repeat", "problem"),
    [
        ({"limit": 3}, "until is missing"),
        ({"until": "last"}, "limit is missing"),
        ({"until": "last", "limit": 3, "times": 4}, "there is no key 'times'; it has until, limit"),
        ({"until": "steps.z.output", "limit": 3}, "there is no step z"),
        ({"until": "last", "limit": 3, "start": "inputs.z"}, "there is no input z"),
    ],
)
def test_what_is_wrong_with_a_repetition_is_named(repeat: dict[str, Any], problem: str) -> None:
    from ratchet.flowkit.reader import read_leniently

    partial = read_leniently({"workflow_id": "w", "steps": [{"step_id": "a", "tool": "t", "repeat": repeat}]})

    assert any(problem in each for each in [*partial.problems, *check_spec(partial.spec)])


def test_pauses_grow_to_their_bound_and_are_spread_by_chance() -> None:
    still = step("a", backoff_seconds=1.0, backoff_factor=3.0, backoff_most=5.0, backoff_jitter=0.0)
    spread = step("a", backoff_seconds=8.0, backoff_jitter=0.5)

    assert [pause_before(still, number) for number in (1, 2, 3)] == [1.0, 3.0, 5.0]
    pauses = {pause_before(spread, 1) for _ in range(50)}
    assert len(pauses) > 1
    assert all(4.0 <= pause <= 8.0 for pause in pauses)
