"""Reading the files of other trials, and continuing from them."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError, TrialStatus
from ratchet.research.sessions.inputs import Idea
from ratchet.workspaces import WorkspaceKind
from tests.research.sessions.lab import GOOD, RECIPE, Lab, use

WIDE = RECIPE.replace("64", "128")


@pytest.mark.parametrize("named", ["exp_001", "1", 1, "001"])
def test_the_files_of_a_discarded_trial_can_be_read_however_it_is_named(lab: Lab, named: str | int) -> None:
    lab.trial(WIDE)
    found = use(lab.context(), "read_snapshot", exp_id=named, path="recipe.py")
    assert (found["content"], found["status"], found["exp_id"]) == (WIDE, "discard", "001")


@pytest.mark.parametrize("status", [*(each for each in TrialStatus if each.tried), None])
def test_the_files_of_any_trial_can_be_read(lab: Lab, status: TrialStatus | None) -> None:
    commit = lab.repository.commit_files({"recipe.py": b"X = 1\n"}, parent=lab.commit(0), message="a trial")
    number = lab.record(commit, status, parent=0).number
    assert use(lab.context(), "read_snapshot", exp_id=number, path="recipe.py")["content"] == "X = 1\n"


@pytest.mark.parametrize("status", [TrialStatus.INFRA_ERROR, TrialStatus.HARNESS_ABORT])
def test_what_says_nothing_about_an_idea_is_not_there(lab: Lab, status: TrialStatus) -> None:
    number = lab.trial(WIDE, status)
    for name in ("read_snapshot", "rebase_to"):
        with pytest.raises(NotFound, match="trial 001 does not exist"):
            use(lab.context(), name, exp_id=number)


def test_the_files_are_listed_without_a_path(lab: Lab) -> None:
    found = use(lab.context(), "read_snapshot", exp_id=0)
    assert sorted(found["files"]) == ["lib/more.py", "recipe.py"]


def test_a_long_file_is_read_a_part_at_a_time(lab: Lab) -> None:
    text = "".join(f"x{number} = {number}\n" for number in range(5000))
    lab.trial(text)
    context = lab.context()
    whole, offset = "", 0
    while True:
        found = use(context, "read_snapshot", exp_id=1, path="recipe.py", offset=offset)
        whole += found["content"]
        if "next_offset" not in found:
            break
        offset = found["next_offset"]
    assert whole == text


@pytest.mark.parametrize(
    "path",
    [
        "../recipe.py",
        "/etc/passwd",
        "lib/../../recipe.py",
        "run.sh",
        "evaluator/score.py",
        "..",
        "",
        ".git/config",
        "recipe.py/..",
        "lib\\..\\run.sh",
        "recipe.py\0",
        "libmore.py",
    ],
)
def test_no_other_path_can_be_read(lab: Lab, path: str) -> None:
    with pytest.raises(Misuse, match="is no path of the recipe"):
        use(lab.context(), "read_snapshot", exp_id=0, path=path)


@pytest.mark.parametrize("path", ["lib", "lib/none.py", "recipe.py/more"])
def test_a_file_that_is_not_there_is_not_found(lab: Lab, path: str) -> None:
    with pytest.raises(NotFound):
        use(lab.context(), "read_snapshot", exp_id=0, path=path)


def test_two_trials_are_compared(lab: Lab) -> None:
    lab.trial(WIDE)
    found = use(lab.context(), "diff_snapshots", exp_a="000", exp_b="exp_1")
    assert found["files"] == ["recipe.py"]
    assert "-WIDTH = 64\n+WIDTH = 128\n" in found["content"]
    assert (found["exp_a"]["status"], found["exp_b"]["status"]) == ("baseline", "discard")
    assert use(lab.context(), "diff_snapshots", exp_a=1, exp_b=1)["content"] == ""


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("read_snapshot", {"exp_id": 9, "path": "recipe.py"}),
        ("diff_snapshots", {"exp_a": 0, "exp_b": 9}),
        ("rebase_to", {"exp_id": 9}),
    ],
)
def test_a_trial_that_does_not_exist_is_not_found(lab: Lab, name: str, given: dict[str, Any]) -> None:
    with pytest.raises(NotFound, match="trial 009"):
        use(lab.context(), name, **given)


def test_a_trial_whose_files_are_elsewhere_is_said_to_be(lab: Lab) -> None:
    lab.record(None, TrialStatus.DISCARD, parent=0)
    with pytest.raises(Misuse, match="only the row is known"):
        use(lab.context(), "rebase_to", exp_id=1)


@pytest.mark.parametrize("kind", [WorkspaceKind.TREE, WorkspaceKind.WORKTREE])
def test_rebasing_brings_the_files_and_makes_that_trial_the_parent(lab: Lab, kind: WorkspaceKind) -> None:
    lab.trial(WIDE)
    context = lab.context(kind=kind)
    (context.workspace.path / "recipe.py").write_text("edited\n")
    assert use(context, "rebase_to", exp_id="exp_1")["workspace_stands_on"] == "001"
    assert (context.workspace.path / "recipe.py").read_text() == WIDE
    (context.workspace.path / "recipe.py").write_text(WIDE.replace("128", "256"))
    use(context, "submit_trial", **GOOD)
    made = lab.trials()[2]
    assert made.parent == 1
    assert lab.repository.log(made.commit or "")[0].parents == (lab.commit(1),)


def test_the_baseline_can_be_gone_back_to(lab: Lab) -> None:
    lab.trial(WIDE)
    context = lab.context(parent=1)
    use(context, "rebase_to", exp_id="000")
    assert (context.workspace.path / "recipe.py").read_text() == RECIPE
    assert context.parent == 0


def test_changes_that_were_never_allowed_are_not_taken_over(lab: Lab) -> None:
    lab.trial(WIDE, TrialStatus.DISQUALIFIED, **{"run.sh": "echo forged\n"})
    context = lab.context()
    with pytest.raises(Misuse, match=r"changed run\.sh"):
        use(context, "rebase_to", exp_id=1)
    assert (context.workspace.path / "run.sh").read_text() == "exit 0\n"
    assert context.parent == 0


def test_a_rebase_that_fails_half_way_leaves_nothing_that_can_be_handed_in(lab: Lab) -> None:
    lab.trial(WIDE)
    context = lab.context(kind=WorkspaceKind.WORKTREE)
    (context.workspace.path / ".git").unlink()
    with pytest.raises(RatchetError):
        use(context, "rebase_to", exp_id=1)
    with pytest.raises(Conflict, match="half of one trial"):
        use(context, "submit_trial", **GOOD)
    assert lab.ideas == []


def test_two_sessions_do_not_touch_each_other(lab: Lab) -> None:
    lab.trial(WIDE)
    one, other = lab.context(specialist="opt"), lab.context(specialist="reg")
    (other.workspace.path / "recipe.py").write_text("mine\n")
    use(one, "rebase_to", exp_id=1)
    (one.workspace.path / "recipe.py").write_text("theirs\n")
    use(one, "submit_trial", **GOOD)
    assert (other.workspace.path / "recipe.py").read_text() == "mine\n"
    assert (other.parent, other.trials, other.trials_left) == (0, [], 1)
    assert lab.trials()[2].specialist == "opt"
    assert [type(each) for each in lab.ideas] == [Idea]
