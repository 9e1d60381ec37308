"""A run keeps the task that it began with."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound
from ratchet.research.tasks import pin_task, pinned_task, read_in_task, task_hash, write_task
from tests.research.tasks.folders import RECIPE, TOML, Folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "home" / "research" / "7"


def test_editing_the_original_changes_nothing(folder: Folder, run: Path) -> None:
    pinned = pin_task(folder.read(), run)
    folder.put("recipe.py", "def answer(given):\n    return 2\n")
    folder.swap('name = "small"', 'name = "other"')
    again = pinned_task(run)
    assert (again.name, again.root, again.sha256) == ("small", run / "task", pinned.sha256)
    assert (again.root / "recipe.py").read_text() == RECIPE


def test_pinning_again_keeps_the_first_copy(folder: Folder, run: Path) -> None:
    first = pin_task(folder.read(), run)
    folder.put("recipe.py", "def answer(given):\n    return 2\n")
    assert pin_task(folder.read(), run).sha256 == first.sha256
    assert (run / "task/recipe.py").read_text() == RECIPE


def test_a_copy_that_was_written_as_one_file_is_the_same_elsewhere(folder: Folder, run: Path) -> None:
    folder.put("evaluator/tool.sh", "true").chmod(0o755)
    folder.put("knowledge/deep/er.md", "known")
    pinned = pin_task(folder.read(), run)
    written, again, elsewhere = io.BytesIO(), io.BytesIO(), run.with_name("8")
    write_task(run, written)
    written.seek(0)
    for _ in range(2):  # what is there stays
        read_in_task(elsewhere, written)
    found = pinned_task(elsewhere)
    assert found.sha256 == pinned.sha256
    assert os.access(found.root / "evaluator/tool.sh", os.X_OK)
    write_task(elsewhere, again)
    assert again.getvalue() == written.getvalue()


def test_a_copy_that_leads_elsewhere_is_refused(run: Path) -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("task/../../../escaped"))
    written.seek(0)
    with pytest.raises(Misuse):
        read_in_task(run, written)
    assert not list(run.glob("*"))
    assert not list(run.parent.parent.glob("escaped"))


def test_the_hash_is_the_same_for_the_folder_and_its_copy(folder: Folder, run: Path) -> None:
    task = folder.read()
    pinned = pin_task(task, run)
    assert pinned.sha256 == task_hash(task) == task_hash(pinned)
    folder.put("evaluator/more.txt", "")
    assert task_hash(folder.read()) != pinned.sha256


def test_what_tools_leave_behind_is_not_copied_and_not_hashed(folder: Folder, run: Path) -> None:
    before = task_hash(folder.read())
    for place in (".git/config", "__pycache__/a.pyc", "evaluator/__pycache__/b.pyc", ".ratchet/ledger.db"):
        folder.put(place, "x")
    pinned = pin_task(folder.read(), run)
    copied = {path.relative_to(pinned.root).as_posix() for path in pinned.root.rglob("*") if path.is_file()}
    assert copied == {"task.toml", "recipe.py", "evaluator/score.py"}
    assert pinned.sha256 == before


def test_a_program_stays_executable(folder: Folder, run: Path) -> None:
    folder.put("run.sh", "#!/bin/sh\n").chmod(0o700)
    root = pin_task(folder.read(), run).root
    assert os.access(root / "run.sh", os.X_OK)
    assert not (root / "recipe.py").stat().st_mode & 0o111


def test_one_copy_serves_several_variants(folder: Folder, run: Path) -> None:
    folder.add("[variants.two]\nagents = 2")
    assert pin_task(folder.read("two"), run).variant == "two"
    assert pin_task(folder.read(), run).variant is None
    assert (pinned_task(run).variant, pinned_task(run, "two").variant) == (None, "two")


def test_code_of_the_folder_is_pinned_with_it(folder: Folder, run: Path) -> None:
    code = "from ratchet.research.adapter import TaskAdapter\nclass T(TaskAdapter):\n    known_best = '1'\n"
    folder.put("task.py", code)
    pin_task(folder.read(), run)
    folder.put("task.py", code.replace("1", "2"))
    assert pinned_task(run).known_best == "1"


@pytest.mark.parametrize("place", ["notes", "evaluator/data"])
def test_a_link_anywhere_in_the_folder_is_refused(folder: Folder, run: Path, place: str) -> None:
    (folder.path / place).symlink_to("/etc/passwd")
    with pytest.raises(Misuse, match="is a symbolic link"):
        pin_task(folder.read(), run)
    assert list(run.iterdir()) == []


def test_a_pipe_in_the_folder_is_refused(folder: Folder, run: Path) -> None:
    os.mkfifo(folder.path / "pipe")
    with pytest.raises(Misuse, match="neither a file nor a directory"):
        pin_task(folder.read(), run)


def test_a_home_inside_the_folder_is_refused_unless_it_is_ratchets_own(folder: Folder) -> None:
    with pytest.raises(Misuse, match="lies in the task's folder"):
        pin_task(folder.read(), folder.path / "home/research/1")
    assert pin_task(folder.read(), folder.path / ".ratchet/research/1").name == "small"


def test_a_run_without_a_copy_is_told(run: Path) -> None:
    with pytest.raises(NotFound):
        pinned_task(run)


@pytest.mark.parametrize("place", ["task/recipe.py", "task/evaluator/new.py"])
def test_a_copy_that_was_changed_is_refused(folder: Folder, run: Path, place: str) -> None:
    pin_task(folder.read(), run)
    (run / place).write_text("changed = 1\n")
    with pytest.raises(Conflict, match="not what the run began with"):
        pinned_task(run)


@pytest.mark.parametrize("record", ["", "{}", "[]", '{"sha256": 1, "entry_point": ""}', None])
def test_a_record_that_was_damaged_is_refused(folder: Folder, run: Path, record: str | None) -> None:
    pin_task(folder.read(), run)
    if record is None:
        (run / "pinned.json").unlink()
    else:
        (run / "pinned.json").write_text(record)
    with pytest.raises(Conflict):
        pinned_task(run)


def test_a_copy_must_be_what_the_caller_saw(folder: Folder, run: Path) -> None:
    seen = task_hash(folder.read())
    folder.put("recipe.py", "def answer(given):\n    return 2\n")
    with pytest.raises(Conflict, match="was changed while it was copied"):
        pin_task(folder.read(), run, sha256=seen)
    assert list(run.iterdir()) == []
    pin_task(folder.read(), run)
    with pytest.raises(Conflict, match="not what the run began with"):
        pin_task(folder.read(), run, sha256=seen)


def test_what_a_killed_process_left_is_removed(folder: Folder, run: Path) -> None:
    (run / ".task-dead/evaluator").mkdir(parents=True)
    (run / ".task-dead.json").write_text("{}")
    (run / "pinned.json").write_text(json.dumps({"sha256": "0" * 64, "entry_point": ""}))
    pin_task(folder.read(), run)
    assert sorted(path.name for path in run.iterdir()) == ["pinned.json", "task"]


def test_many_at_once_make_one_copy(folder: Folder, run: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(pin_task(folder.read(), run).sha256)) for _ in range(6)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [task_hash(folder.read())] * 6
    assert sorted(path.name for path in run.iterdir()) == ["pinned.json", "task"]


KILLED = """
import os, signal, sys
from pathlib import Path
from ratchet.research.tasks import find_task, pin_task

def kill_at(step):
    left = step
    def hook(event, arguments):
        nonlocal left
        if event in ("open", "os.rename", "os.mkdir", "os.chmod", "os.rmdir", "shutil.copyfile"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

task = find_task(sys.argv[1])
step, status = 0, 1
while status:
    step += 1
    assert step < 500
    child = os.fork()
    if child == 0:
        kill_at(step)
        pin_task(task, Path(sys.argv[2]) / str(step))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
"""


@pytest.mark.soak
def test_a_kill_at_any_step_leaves_a_whole_copy_or_none(folder: Folder, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    words = [sys.executable, "-c", KILLED, str(folder.path), str(runs)]
    subprocess.run(words, check=True)
    found = sorted(runs.iterdir(), key=lambda path: int(path.name))
    whole = [(run / "task").exists() for run in found]
    assert whole == sorted(whole), "once it is there it stays there"
    assert not whole[0]
    assert whole[-1]
    for run in found:
        expected = task_hash(folder.read())
        if (run / "task").exists():
            assert pinned_task(run).sha256 == expected
        assert pin_task(folder.read(), run).sha256 == expected
        assert sorted(path.name for path in run.iterdir()) == ["pinned.json", "task"]


def test_a_folder_with_a_name_that_no_tree_can_have_is_refused(folder: Folder, run: Path) -> None:
    folder.put("evaluator/a\nb", "")
    with pytest.raises(Misuse, match="control character"):
        pin_task(folder.read(), run)


def test_the_copy_is_what_toml_said(folder: Folder, run: Path) -> None:
    assert (pin_task(folder.read(), run).root / "task.toml").read_text() == TOML
