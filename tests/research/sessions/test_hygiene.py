"""What tools leave in a workspace is no part of a candidate, and other strays are named before a trial is charged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.kernel import Misuse
from ratchet.research.sessions import SessionContext
from tests.research.sessions.lab import GOOD, Lab, use

LITTER = (
    "__pycache__/recipe.cpython-312.pyc",
    "lib/__pycache__/more.cpython-312.pyc",
    "lib/more.pyc",
    ".pytest_cache/v/cache/lastfailed",
    ".mypy_cache/3.12/recipe.data.json",
    ".ruff_cache/0.1/1234",
    ".hypothesis/examples/1",
    ".recipe.py.swp",
    "recipe.py~",
    "#recipe.py#",
    ".DS_Store",
    ".idea/workspace.xml",
)


def leave(context: SessionContext, path: str, content: bytes = b"\0litter") -> None:
    place = context.workspace.path / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def edit(context: SessionContext, text: str = "WIDTH = 128\n") -> None:
    (context.workspace.path / "recipe.py").write_text(text)


def files(lab: Lab, number: int) -> set[str]:
    return set(lab.repository.list_files(lab.commit(number)))


@pytest.mark.parametrize("path", LITTER)
def test_what_tools_leave_behind_is_no_part_of_a_candidate(lab: Lab, path: str) -> None:
    context = lab.context()
    edit(context)
    leave(context, path)
    assert use(context, "syntax_check")["ok"]
    assert use(context, "submit_trial", **GOOD)["status"] == "discard"
    assert files(lab, 1) == {"recipe.py", "lib/more.py", "run.sh"}


def test_a_change_of_bytecode_alone_is_no_change(lab: Lab) -> None:
    context = lab.context()
    before = context.workspace.changes()
    leave(context, "lib/__pycache__/more.cpython-312.pyc")
    assert context.workspace.changes() == before == []


def test_a_stray_file_is_named_before_a_trial_is_charged(lab: Lab) -> None:
    context = lab.context()
    edit(context)
    leave(context, "notes.txt", b"an idea")
    leave(context, "scratch/try.py", b"x = 1\n")
    checked = use(context, "syntax_check")
    assert not checked["ok"]
    assert checked["strays"] == [
        "notes.txt is no part of the recipe",
        "scratch/try.py is no part of the recipe",
    ]
    with pytest.raises(Misuse, match=r"notes\.txt is no part of the recipe") as refused:
        use(context, "submit_trial", **GOOD)
    assert "remove" in (refused.value.hint or "")
    assert (lab.ideas, context.trials_left) == ([], 1)
    (context.workspace.path / "notes.txt").unlink()
    (context.workspace.path / "scratch/try.py").unlink()
    assert use(context, "submit_trial", **GOOD)["exp_id"] == "001"


def test_a_changed_stage_file_and_a_removed_one_are_strays(lab: Lab) -> None:
    context = lab.context()
    leave(context, "run.sh", b"exit 1\n")
    assert use(context, "syntax_check")["strays"] == ["run.sh is no part of the recipe"]
    (context.workspace.path / "run.sh").unlink()
    assert use(context, "syntax_check")["strays"] == ["run.sh is no part of the recipe"]


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        ("lib/weights.bin", b"\0\1\2", "is binary"),
        ("lib/more.cpython-312-x86_64-linux-gnu.so", b"\x7fELF\0", "is binary"),
        ("lib/latin.txt", b"\xe4", "is binary"),
        ("lib/sitecustomize.py", b"x = 1\n", "would be run by Python itself"),
        ("lib/usercustomize.py", b"x = 1\n", "would be run by Python itself"),
        ("lib/more.pth", b"import os\n", "would be run by Python itself"),
    ],
)
def test_a_file_that_no_reader_of_the_source_sees_is_a_stray(
    lab: Lab, path: str, content: bytes, why: str
) -> None:
    context = lab.context()
    edit(context)
    leave(context, path, content)
    [stray] = use(context, "syntax_check")["strays"]
    assert stray.startswith(f"{path} {why}")
    with pytest.raises(Misuse, match=why):
        use(context, "submit_trial", **GOOD)


def test_a_task_says_which_binary_files_belong_to_a_candidate(lab: Lab) -> None:
    context = lab.context(task=replace(lab.task, binary_files=("lib/*.bin",)))
    leave(context, "lib/weights.bin")
    assert use(context, "syntax_check")["ok"]
    leave(context, "lib/weights.npy")
    assert [each.partition(" ")[0] for each in use(context, "syntax_check")["strays"]] == ["lib/weights.npy"]


def test_a_linked_recipe_is_named_before_a_trial_is_charged(lab: Lab) -> None:
    context = lab.context()
    (context.workspace.path / "recipe.py").unlink()
    (context.workspace.path / "recipe.py").symlink_to("lib/more.py")
    assert use(context, "syntax_check")["strays"] == ["recipe.py is a link and no plain file"]
    with pytest.raises(Misuse, match="link"):
        use(context, "submit_trial", **GOOD)


def test_bytecode_is_not_counted_as_size(lab: Lab) -> None:
    context = lab.context(task=replace(lab.task, size_limit_bytes=1000))
    before = use(context, "syntax_check")["size"]["total_bytes"]
    leave(context, "lib/__pycache__/more.cpython-312.pyc", b"\0" * 5000)
    assert use(context, "syntax_check")["size"] == {
        "verdict": "ok",
        "total_bytes": before,
        "limit_bytes": 1000,
    }
