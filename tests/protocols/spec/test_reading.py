"""Specs from JSON and back, and everything that can be wrong with them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from ratchet.protocols.spec import (
    QaPolicy,
    SpecInvalid,
    StepOutputs,
    infer_step_type,
    read_protocol_spec,
    spec_schema,
    step_rows,
    write_protocol_spec,
)
from ratchet.protocols.spec.validation import read_leniently
from tests.protocols.spec.specs import protocol, step

FULL = {
    "version": "1.2",
    "placeholders": {"PROMPTS": "prompts"},
    "template": {"template": "spec-to-code"},
    "metadata": {"by": "hand"},
    "steps": [
        step(
            "plan",
            name="00-plan",
            description="Think first.",
            model="m1",
            inputs={"goal": "speed"},
            outputs={"protocol": "outputs/plan.md", "aux": {"mirror": "outputs/mirror.md"}},
            step_type="work",
            policies=[{"module_id": "again", "behavior": "loop", "max_iterations": 2}],
            qa={"policy": "light", "prompt": "qa.md", "model": "m2", "engine_id": "e", "inputs": {"a": 1}},
            metadata={"agent": {"model": "m3"}},
        ),
        step("build", engine_id="codex", depends_on=["plan"], parallel_group="both", order=7),
    ],
}


def problems_of(data: Any, **more: Any) -> list[str]:
    with pytest.raises(SpecInvalid) as caught:
        read_protocol_spec(data, **more)
    return caught.value.problems


def test_the_schema_is_one_of_draft_07() -> None:
    schema = spec_schema()
    Draft7Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert Draft7Validator(schema).is_valid(FULL)
    assert not Draft7Validator(schema).is_valid(protocol(step("a", surprise=1)))


def test_everything_that_is_said_is_read() -> None:
    spec = read_protocol_spec(FULL)

    plan, build = spec.steps
    assert (plan.called, plan.kind, plan.qa.policy) == ("00-plan", "work", QaPolicy.LIGHT)
    assert plan.outputs == StepOutputs("outputs/plan.md", {"mirror": "outputs/mirror.md"})
    assert (build.engine_id, build.depends_on, build.parallel_group) == ("codex", ("plan",), "both")


def test_what_was_written_is_read_as_the_same() -> None:
    spec = read_protocol_spec(FULL)

    written = write_protocol_spec(spec)

    assert written == FULL
    assert read_protocol_spec(json.loads(json.dumps(written))) == spec


def test_null_means_that_nothing_is_said() -> None:
    quiet = dict.fromkeys(("name", "model", "step_type", "order", "parallel_group", "description"))

    assert read_protocol_spec(protocol(step("a", **quiet))) == read_protocol_spec(protocol(step("a")))


def test_steps_are_sorted_by_order_and_others_stay_behind_their_predecessors() -> None:
    spec = read_protocol_spec(protocol(step("a", order=5), step("b"), step("c", order=1), step("d", order=5)))

    assert [each.id for each in spec.steps] == ["c", "a", "b", "d"]
    assert read_protocol_spec(write_protocol_spec(spec)) == spec


@pytest.mark.soak
@given(st.lists(st.none() | st.integers(-3, 3), min_size=1, max_size=8))
def test_sorting_what_is_sorted_changes_nothing(orders: list[int | None]) -> None:
    spec = read_protocol_spec(protocol(*(step(f"s{n}", order=order) for n, order in enumerate(orders))))

    assert read_protocol_spec(write_protocol_spec(spec)).steps == spec.steps


def test_all_problems_are_told_at_once() -> None:
    told = problems_of(
        {
            "stepz": [],
            "steps": [
                step("a", depends_on=["nobody", "b"]),
                {"id": "b", "engine_id": 7, "prompt_ref": "b.md", "qa": {"policy": "maybe"}},
                step("c", prompt_ref="../../etc/passwd"),
                step("d", policies=[{"behavior": "jump"}]),
            ],
        }
    )

    assert len(told) == 6
    text = "\n".join(told)
    assert "'stepz'" in text
    assert "$.steps[1].engine_id" in text
    assert "$.steps[1].qa.policy" in text
    assert "step a depends on nobody, which does not exist" in text
    assert "'../../etc/passwd' leads out of its folder" in text
    assert "step d: policy 1: its behavior is 'jump'" in text


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "$: None is not of type 'object'"),
        ([], "$: [] is not of type 'object'"),
        ({}, "'steps' is a required property"),
        ({"steps": []}, "$.steps"),
        ({"steps": ["a"]}, "$.steps[0]"),
        (protocol(step("a", surprise=1)), "'surprise'"),
        (protocol(step("a", outputs={"stdout": "x.md"})), "'stdout'"),
        (protocol(step("a", qa={})), "'policy' is a required property"),
        (protocol(step("a", step_type="play")), "'play'"),
        (protocol(step("a", metadata={"x": float("nan")})), "cannot be stored as JSON"),
        (protocol(step("a"), step("a")), "'a' names 2 steps"),
        (protocol(step("a"), step("b", name="a")), "'a' names 2 steps"),
        (protocol(step("a/b", prompt_ref="x.md")), "'a/b' has a slash in it"),
        (protocol(step("..", prompt_ref="x.md")), "'..' is not a file name"),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_refused(data: Any, told: str) -> None:
    assert told in "\n".join(problems_of(data))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x.md",
        "a/../../x.md",
        "a\0b",
        ".git/config",
        "x/.GIT/hooks",
        "a\\..\\b",
        "C:\\x",
        ".",
    ],
)
def test_unsafe_paths_are_problems_wherever_they_stand(path: str) -> None:
    told = problems_of(
        protocol(
            step("a", prompt_ref=path),
            step("b", qa={"policy": "full", "prompt": path}),
            step("c", outputs={"protocol": path}),
            step("d", outputs={"aux": {"x": path}}),
        )
    )

    assert {problem.partition(":")[0] for problem in told} == {"step a", "step b", "step c", "step d"}


@pytest.mark.parametrize(
    "path", ["a.md", "./a.md", "qa.md", ".protocols/0001-x/a.md", "plan.md", "context.md", "log.md"]
)
def test_an_output_that_would_overwrite_an_input_is_a_problem(path: str) -> None:
    told = problems_of(
        protocol(
            step("a", qa={"policy": "full", "prompt": "qa.md"}),
            step("b", outputs={"aux": {"copy": path}}),
        ),
        root=".protocols/0001-x",
    )

    assert len(told) == 1
    assert told[0].startswith("step b: output 'copy'")
    assert "overwrite" in told[0]


def test_a_great_many_problems_are_counted_rather_than_listed() -> None:
    told = problems_of(protocol(*(step(f"s{n}", depends_on=["nobody"]) for n in range(300))))

    assert len(told) == 101
    assert told[-1] == "and 200 more problems"


def test_a_spec_that_is_nested_without_end_is_refused() -> None:
    deep: Any = "here"
    for _ in range(500):
        deep = [deep]

    [problem] = problems_of(protocol(step("a", metadata={"deep": deep})))

    assert problem.startswith("the spec cannot be read: ")
    assert "recursion limit" in problem


def test_paths_are_read_without_parts_that_say_nothing() -> None:
    spec = read_protocol_spec(protocol(step("a", prompt_ref="./prompts//a.md")))

    assert spec.steps[0].prompt_ref == "prompts/a.md"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00-plan", "setup"),
        ("01-Setup-database", "setup"),
        ("02-qa-review", "qa"),
        ("03-final-QA", "qa"),
        ("04-build", "work"),
        ("100-build", "work"),
    ],
)
def test_the_type_of_a_step_follows_from_its_name(name: str, kind: str) -> None:
    assert infer_step_type(name) == kind


def test_rows_have_the_names_of_dependencies_and_the_whole_step() -> None:
    plan, build = step_rows(read_protocol_spec(FULL))

    assert (plan["name"], plan["step_index"], plan["step_type"]) == ("00-plan", 0, "work")
    assert plan["policy"] == FULL["steps"][0]["policies"]
    assert plan["depends_on"] is None
    assert (build["name"], build["step_index"], build["depends_on"]) == ("build", 1, ["00-plan"])
    assert build["spec"] == FULL["steps"][1]
    assert (build["engine_id"], build["policy"]) == ("codex", None)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)
_steps = st.lists(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(spec_schema()["$defs"]["StepSpec"]["properties"], _json)
    ),
    max_size=3,
)


@pytest.mark.soak
@given(st.fixed_dictionaries({"steps": _steps | _json}) | _json)
def test_whatever_is_given_is_read_or_refused_with_problems(data: Any) -> None:
    spec, problems = read_leniently(data)

    assert problems or (spec is not None and read_protocol_spec(write_protocol_spec(spec)) == spec)
