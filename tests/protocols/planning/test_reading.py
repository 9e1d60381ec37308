"""Answers of engines: what is a plan, and everything that is wrong with what is none."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.engines.engine import check_schema, misfits
from ratchet.protocols.planning.plan import (
    LONGEST_FILE,
    PLAN_SCHEMA,
    ProtocolPlan,
    read_plan,
    with_every_key,
)
from ratchet.question import BadAnswer
from tests.protocols.planning.plans import plan, question, step

NAME = "0001-greet"


def problems(data: Any, **more: Any) -> list[str]:
    """What is wrong with an answer."""
    try:
        read_plan(data, NAME, **more)
    except BadAnswer as bad:
        return list(bad.problems)
    return []


def test_the_form_of_the_original_is_enough() -> None:
    given = {
        "plan_md": "# Plan",
        "context_md": "",
        "log_md": "",
        "step_files": [
            {"filename": "00-setup.md", "content": "ready"},
            {"filename": "01-a.md", "content": "do"},
        ],
    }
    assert misfits(given, PLAN_SCHEMA) is None
    read = read_plan(given, NAME)
    assert read.files() == {
        "plan.md": "# Plan\n",
        "context.md": "# Context\n",
        "log.md": "# Log\n",
        "00-setup.md": "ready\n",
        "01-a.md": "do\n",
    }


def test_the_form_for_structured_output_wants_every_key_and_no_other() -> None:
    asked = with_every_key(PLAN_SCHEMA)
    check_schema(asked)
    assert misfits(plan(), asked) is None
    assert asked["required"] == list(PLAN_SCHEMA["properties"])
    files = asked["properties"]["step_files"]["items"]
    assert files["required"] == list(files["properties"])
    assert PLAN_SCHEMA["required"] == ["plan_md", "context_md", "log_md", "step_files"]


def test_a_plan_is_read_again_from_what_it_was_written_as() -> None:
    given = plan(
        step("00-setup.md"),
        step("01-a.md", title="A", qa="light", parallel_group="g", engine="codex", needs_decomposition=True),
        step("02-b.md", depends_on=["00-setup.md"], parallel_group="g", step_type="qa"),
        clarifications=[question("tone", options=["warm", "cold"], recommended="warm", blocking=True)],
    )
    read = read_plan(given, NAME, engines=["codex"])
    assert ProtocolPlan.of(read.data) == read
    assert read.steps[2].depends_on == ("00-setup",)
    assert read.questions[0].options == ("warm", "cold")


def test_a_setup_is_added_where_it_was_left_out_and_steps_are_put_in_order() -> None:
    read = read_plan(plan(step("02-b.md"), step("01-A.md")), NAME)
    assert [each.name for each in read.steps] == ["00-setup", "01-a", "02-b"]
    assert read.steps[0].step_type == "setup"
    assert "Change no code" in read.steps[0].content


@pytest.mark.parametrize(
    "filename",
    [
        "../../etc/passwd",
        "../01-a.md",
        "/01-a.md",
        "/etc/01-a.md",
        "01-../a.md",
        "01-a/b.md",
        "01-a\\b.md",
        "C:\\01-a.md",
        "01-a..md",
        "01-a.md\n",
        "01-a\0.md",
        "01-a.sh",
        "1-a.md",
        "plan.md",
        ".git",
        "01-ä.md",
        "01-" + "a" * 100 + ".md",
        "",
        None,
        7,
        ["01-a.md"],
        {"name": "01-a.md"},
    ],
)
def test_a_file_that_is_not_a_step_of_this_folder_is_refused(filename: Any) -> None:
    told = problems(plan(step("01-a.md"), step(filename)))
    assert len(told) == 1
    assert told[0].startswith("step_files[1].filename is ")


def test_everything_is_told_at_once() -> None:
    bad = plan(
        step("01-a.md", content="", depends_on=["09-z.md"]),
        step("02-b.md", qa="sometimes", engine="replay:tape"),
        step("02-c.md", step_type=["work"], needs_decomposition="yes"),
        step("01-a.md"),
        "not a step",
        plan_md=" ",
        context_md=None,
        clarifications=[{"key": "A Key", "blocking": 1}],
    )
    told = "\n".join(problems(bad, engines=["codex"]))
    for problem in (
        "plan_md is empty",
        "context_md is missing, not a text",
        "step_files[0].content is empty",
        "02-b: qa is 'sometimes'",
        "02-b: engine is 'replay:tape'; it must be null or one of codex",
        "02-c: step_type is a list of 1",
        "02-c: needs_decomposition is 'yes'",
        "step_files[4] is 'not a step'",
        "01-a.md is there 2 times",
        "2 step files have the number 02: 02-b.md, 02-c.md",
        "clarifications[0].key is 'A Key'",
        "clarifications[0].question is empty",
        "clarifications[0].blocking is 1",
    ):
        assert problem in told


@pytest.mark.parametrize("given", [None, [], "plan", 7, {}, {"step_files": {}}, {"step_files": None}])
def test_what_is_no_plan_at_all_is_refused_with_a_reason(given: Any) -> None:
    assert problems(given)


def test_steps_that_wait_for_each_other_or_for_nobody_are_refused() -> None:
    circle = plan(step("01-a.md", depends_on=["02-b.md"]), step("02-b.md", depends_on=["01-a"]))
    [told] = problems(circle)
    assert "01-a" in told
    assert "02-b" in told
    [told] = problems(plan(step("01-a.md", depends_on=["09-z.md"])))
    assert told == "step 01-a depends on 09-z, which does not exist"
    # The setup comes first unless something else is said, so it cannot wait for what follows it.
    assert problems(plan(step("00-setup.md", depends_on=["01-a.md"]), step("01-a.md")))


def test_a_plan_without_work_is_refused() -> None:
    assert any("does the work" in each for each in problems(plan(step("00-setup.md"))))
    assert any("does the work" in each for each in problems(plan(step("00-setup.md"), step("01-qa.md"))))
    assert any("does the work" in each for each in problems({**plan(), "step_files": []}))


def test_only_the_setup_has_the_number_of_the_setup() -> None:
    assert any("00-begin.md" in each for each in problems(plan(step("00-begin.md"), step("01-a.md"))))


def test_texts_that_are_too_long_or_cannot_be_files_are_refused() -> None:
    assert "200,001 characters" in problems(plan(step("01-a.md", content="x" * (LONGEST_FILE + 1))))[0]
    many = [step(f"{number:02d}-a.md", content="x" * 150_000) for number in range(1, 9)]
    assert any("all files together" in each for each in problems(plan(*many)))
    assert "NUL" in problems(plan(plan_md="a\0b"))[0]
    assert "surrogate" in problems(plan(plan_md="a\ud800b"))[0]


def test_a_key_is_asked_only_once() -> None:
    assert any(
        "is there 2 times" in each for each in problems(plan(clarifications=[question("a"), question("a")]))
    )
