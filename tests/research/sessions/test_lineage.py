"""Reading the history of a run, adding to it, and not being able to do either."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound, TrialStatus
from ratchet.ledger.research import list_lessons
from ratchet.research.sessions.tools import tool_names
from tests.research.sessions.lab import GOOD, RECIPE, Lab, tools, use

READING = {"read_lineage", "read_snapshot", "diff_snapshots", "write_lesson"}


def ids(found: dict[str, Any]) -> list[str]:
    return [each["exp_id"] for each in found["trials"]]


def test_each_view_shows_its_trials(both_labs: Lab) -> None:
    both_labs.trial("A = 1\n", TrialStatus.KEEP)
    both_labs.trial("A = 2\n", TrialStatus.DISCARD, parent=1)
    both_labs.trial("A = 3\n", TrialStatus.CRASH, parent=1)
    both_labs.trial("A = 4\n", TrialStatus.INFRA_ERROR, parent=1)
    both_labs.record(both_labs.commit(2), None, parent=2, specialist="opt")
    context = both_labs.context()
    assert ids(use(context, "read_lineage", view="recent")) == ["005", "003", "002", "001", "000"]
    assert ids(use(context, "read_lineage", view="mine")) == ["005"]
    assert ids(use(context, "read_lineage", view="kept")) == ["001", "000"]
    assert ids(use(context, "read_lineage", view="near_misses")) == ["002"]
    assert ids(use(context, "read_lineage", view="ancestors", exp_id=5)) == ["005", "002", "001", "000"]
    assert ids(use(context, "read_lineage", view="children", exp_id="exp_1")) == ["003", "002"]


def test_a_long_history_is_read_a_page_at_a_time(lab: Lab) -> None:
    first = lab.commit(0)
    for _ in range(45):
        lab.record(first, TrialStatus.DISCARD, parent=0)
    context = lab.context()
    found = use(context, "read_lineage", view="recent")
    pages = [ids(found)]
    while "next_before" in found:
        found = use(context, "read_lineage", view="recent", before=found["next_before"])
        pages.append(ids(found))
    assert [len(page) for page in pages] == [20, 20, 6]
    assert [each for page in pages for each in page] == [f"{number:03}" for number in range(45, -1, -1)]


def test_one_trial_is_told_in_full_but_for_what_is_held_out(lab: Lab) -> None:
    number = lab.trial("A = 1\n")
    found = use(lab.context(), "read_lineage", view="trial", exp_id=number)
    assert (found["hypothesis"], found["reason"]) == ("an idea of somebody else", "it ended as discard")
    assert "notes" in found
    assert "measurements" not in found


@pytest.mark.parametrize("view", ["trial", "ancestors", "children"])
def test_a_view_of_a_trial_needs_its_id(lab: Lab, view: str) -> None:
    with pytest.raises(Misuse, match="is one of a trial"):
        use(lab.context(), "read_lineage", view=view)


def test_what_could_not_be_measured_is_no_trial_to_look_at(lab: Lab) -> None:
    number = lab.trial("A = 1\n", TrialStatus.INFRA_ERROR)
    with pytest.raises(NotFound):
        use(lab.context(), "read_lineage", view="trial", exp_id=number)


def test_a_lesson_is_kept_with_who_wrote_it_and_after_which_trial(both_labs: Lab) -> None:
    context = both_labs.context(specialist="reg")
    (context.workspace.path / "recipe.py").write_text("WIDTH = 1\n")
    use(context, "submit_trial", **GOOD)
    use(context, "write_lesson", lesson="narrow layers never help on this task")
    with both_labs.ledger.read() as tx:
        [lesson] = list_lessons(tx, both_labs.run_id)
    assert (lesson.specialist, lesson.trial, lesson.text) == (
        "reg",
        1,
        "narrow layers never help on this task",
    )
    shown = use(both_labs.context(), "read_lineage", view="lessons")["lessons"]
    assert [each["lesson"] for each in shown] == [lesson.text]


@pytest.mark.parametrize(
    "lesson", ["too short", "x" * 1001, "a lesson with a \x1b[2J in it", "a lesson </lesson> leaked"]
)
def test_what_is_no_lesson_is_refused(lab: Lab, lesson: str) -> None:
    with pytest.raises(Misuse):
        use(lab.context(), "write_lesson", lesson=lesson)
    with lab.ledger.read() as tx:
        assert list_lessons(tx, lab.run_id) == []


def test_a_session_cannot_flood_the_others_with_lessons(lab: Lab) -> None:
    context = lab.context()
    for number in range(5):
        use(context, "write_lesson", lesson=f"lesson number {number} of this session")
    with pytest.raises(Conflict, match="5 lessons"):
        use(context, "write_lesson", lesson="one lesson more than there may be")


def test_without_lineage_nothing_that_reads_it_is_offered(lab: Lab) -> None:
    offered = set(tools(lab.context(lineage=False)))
    assert not offered & READING
    assert offered == set(tool_names(lab.task, lineage=False))
    assert set(tools(lab.context())) - offered == READING


def test_without_lineage_only_the_own_beginning_and_own_trials_can_be_gone_back_to(lab: Lab) -> None:
    lab.trial("A = 1\n")
    lab.trial("A = 2\n", TrialStatus.KEEP)
    context = lab.context(lineage=False, parent=2)
    with pytest.raises(NotFound, match="trial 001"):
        use(context, "rebase_to", exp_id=1)
    (context.workspace.path / "recipe.py").write_text("A = 3\n")
    use(context, "submit_trial", **GOOD)
    for number, recipe in ((0, RECIPE), (2, "A = 2\n"), (3, "A = 3\n")):
        use(context, "rebase_to", exp_id=number)
        assert (context.workspace.path / "recipe.py").read_text() == recipe


def test_without_lineage_the_workspace_holds_no_history(lab: Lab) -> None:
    lab.trial("SECRET = 1\n")
    context = lab.context(lineage=False)
    assert not (context.workspace.path / ".git").exists()
    assert context.workspace.readable == ()


def test_tools_of_two_sessions_can_be_used_at_once(lab: Lab) -> None:
    one, other = lab.context(specialist="one"), lab.context(specialist="other")
    for context, width in ((one, 1), (other, 2)):
        (context.workspace.path / "recipe.py").write_text(f"WIDTH = {width}\n")

    async def run() -> None:
        await asyncio.gather(*(tools(each)["submit_trial"].run(GOOD) for each in (one, other)))

    asyncio.run(run())
    made = {trial.specialist: trial for trial in lab.trials().values()}
    read = {name: lab.repository.read_file(made[name].commit or "", "recipe.py") for name in ("one", "other")}
    assert read == {"one": b"WIDTH = 1\n", "other": b"WIDTH = 2\n"}
