"""What a run's first commit holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.research.tasks import initial_files
from ratchet.workspaces import Repository
from tests.research.tasks.folders import RECIPE, Folder


def test_the_recipe_and_the_stage_files_are_at_their_places(folder: Folder, tmp_path: Path) -> None:
    for place in (
        "src/a.py",
        "src/deep/b.py",
        "src/__pycache__/a.pyc",
        "shell/run.sh",
        "tools/x",
        "tools/y/z",
    ):
        folder.put(place, place)
    folder.swap(
        'recipe = ["recipe.py"]',
        'recipe = ["recipe.py", "src"]\nstage_files = { "shell/run.sh" = "run.sh", "tools" = "lib/tools" }',
    )
    found = initial_files(folder.read())
    assert found == {
        "recipe.py": RECIPE.encode(),
        "src/a.py": b"src/a.py",
        "src/deep/b.py": b"src/deep/b.py",
        "run.sh": b"shell/run.sh",
        "lib/tools/x": b"tools/x",
        "lib/tools/y/z": b"tools/y/z",
    }
    with Repository.create(tmp_path / "repo.git") as repository:
        commit = repository.commit_files(found, parent=None, message="Baseline")
        assert set(repository.list_files(commit)) == set(found)


def test_nothing_of_the_evaluator_is_in_it(folder: Folder) -> None:
    assert set(initial_files(folder.read())) == {"recipe.py"}


def test_a_recipe_without_a_file_is_refused(folder: Folder) -> None:
    (folder.path / "src").mkdir()
    folder.swap('recipe = ["recipe.py"]', 'recipe = ["src"]\nstage_files = { "recipe.py" = "recipe.py" }')
    with pytest.raises(Misuse, match=r"the recipe of small \(src\) holds no file"):
        initial_files(folder.read())


def test_a_link_in_the_recipe_is_refused(folder: Folder) -> None:
    folder.put("src/a.py", "")
    (folder.path / "src/b.py").symlink_to("/etc/passwd")
    folder.swap('"recipe.py"]', '"recipe.py", "src"]')
    with pytest.raises(Misuse, match="is a symbolic link"):
        initial_files(folder.read())


def test_a_file_that_is_too_large_is_refused(folder: Folder) -> None:
    with folder.put("src/big.bin", "").open("r+b") as file:
        file.truncate(33 * 1024**2)
    folder.swap('"recipe.py"]', '"recipe.py", "src"]')
    with pytest.raises(Misuse, match="is too much"):
        initial_files(folder.read())
