"""Steps that need it are taken apart before the plan is committed; whatever fails there leaves the step as it was."""

from __future__ import annotations

import pytest

from ratchet.kernel import RunStatus
from ratchet.modelserver import answer, fail
from ratchet.protocols.planning.plan import PlannedStep
from ratchet.protocols.planning.proposal import needs_decomposition
from tests.protocols.planning.conftest import NAME, Desk
from tests.protocols.planning.plans import plan, step

only_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
TWO_LARGE = plan(
    step("00-setup.md", needs_decomposition=True),
    step("01-small.md", "# Small\n"),
    step("02-large.md", "# Large\n", needs_decomposition=True),
    step("03-larger.md", "# Larger\n", needs_decomposition=True),
)


@pytest.mark.soak
def test_only_the_files_of_steps_that_need_it_are_rewritten(desk: Desk) -> None:
    script = desk.open(
        answer(TWO_LARGE), answer({"content": "1. Large in parts"}), answer({"content": "1. Larger in parts"})
    )
    planned = desk.plan()
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert [shown(desk, f"{number}.md") for number in ("01-small", "02-large", "03-larger")] == [
        "# Small",
        "1. Large in parts",
        "1. Larger in parts",
    ]
    assert (shown(desk, "plan.md"), shown(desk, "context.md"), shown(desk, "log.md")) == (
        "# Plan\n\nGreet.",
        "# Context",
        "# Log",
    )
    assert desk.git("log", "--format=%s", f"main..{NAME}").count("\n") == 0
    assert "02-large.md" in script.requests[1].said
    assert [each.role for each in desk.sessions(planned)] == ["decomposer", "decomposer", "planner"]
    assert [each.data["step"] for each in desk.events(planned, "step_decomposed")] == [
        "02-large",
        "03-larger",
    ]
    [told] = desk.events(planned, "planned")
    assert set(told.data["prompt_versions"]) == {"planning", "decompose"}


@pytest.mark.soak
@only_sqlite
def test_a_step_that_cannot_be_taken_apart_stays_as_it_was_planned_and_an_event_says_so(desk: Desk) -> None:
    desk.open(answer(TWO_LARGE), fail(401, message="no such key"), answer({"content": "1. In parts"}))
    planned = desk.plan()
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert (shown(desk, "02-large.md"), shown(desk, "03-larger.md")) == ("# Large", "1. In parts")
    [told] = desk.events(planned, "step_decomposition_failed")
    assert told.data["step"] == "02-large"
    assert "no such key" in told.data["reason"]


@pytest.mark.soak
@only_sqlite
def test_an_empty_step_is_sent_back(desk: Desk) -> None:
    one = plan(step("01-large.md", "# Large\n", needs_decomposition=True))
    script = desk.open(answer(one), answer({"content": "  "}), answer({"content": "1. In parts"}))
    desk.plan()
    assert shown(desk, "01-large.md") == "1. In parts"
    assert "content is empty" in script.requests[2].said


@pytest.mark.soak
@only_sqlite
def test_nothing_is_taken_apart_when_that_is_off(desk: Desk) -> None:
    script = desk.open(answer(TWO_LARGE), **{"protocols.decompose": False})
    desk.plan()
    assert (shown(desk, "02-large.md"), len(script.requests)) == ("# Large", 1)


@pytest.mark.soak
@only_sqlite
def test_another_model_may_take_steps_apart(desk: Desk) -> None:
    one = plan(step("01-large.md", needs_decomposition=True))
    desk.open(
        answer(one), answer({"content": "1. In parts"}), **{"protocols.models.decompose": "local/small"}
    )
    planned = desk.plan()
    assert [each.model for each in desk.sessions(planned)] == ["local/small", "local/scripted"]


@pytest.mark.parametrize(
    ("planned", "needs"),
    [
        (PlannedStep("01-a", "short"), False),
        (PlannedStep("01-a", "short", needs_decomposition=True), True),
        (PlannedStep("01-a", "- one thing\n" * 1000), True),
        (PlannedStep("01-a", "- one thing\n" * 1000, needs_decomposition=False), False),
        (PlannedStep("01-a", "a long story " * 1000), False),
        (PlannedStep("01-a", "- one\n" * 30), False),
        (PlannedStep("00-setup", "- one thing\n" * 1000, needs_decomposition=True), False),
        (PlannedStep("01-a", "x", step_type="setup", needs_decomposition=True), False),
    ],
)
def test_a_step_is_taken_apart_when_the_plan_says_so_or_it_lists_a_great_deal(
    planned: PlannedStep, needs: bool
) -> None:
    assert needs_decomposition(planned) is needs


def shown(desk: Desk, file: str) -> str:
    return desk.git("show", f"{NAME}:.protocols/{NAME}/{file}")
