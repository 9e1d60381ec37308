"""A disk that is full is nobody's idea, unless the trial filled it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.kernel import TrialStatus
from ratchet.sandbox.inside import linux, names, namespaces

PROGRAM = '''
import asyncio, sys, tempfile
from pathlib import Path
from ratchet.research.adapter import EvaluatorProgram, Program, TaskAdapter
from ratchet.research.measurement.result import Unmeasured
from ratchet.research.measurement import TaskMeter
from ratchet.workspaces import Repository

root, disk, filled = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
(disk / "others").write_bytes(bytes(filled))
tempfile.tempdir = str(disk)
(root / "evaluator").mkdir()
(root / "evaluator" / "evaluate.py").write_text("def score(asked):\\n    return {'score': 1}")
recipe = b"""
import sys
for name in ("/a", "/b"):
    open(sys.argv[1] + name, "wb", 0).write(bytes(32 * 2**20))
"""
(root / "recipe.py").write_bytes(recipe)
task = TaskAdapter(
    name="full", root=root, recipe=("recipe.py",),
    trial=Program(argv=("{python}", "-I", "-S", "recipe.py", "{out}")),
    evaluator=EvaluatorProgram(file="evaluate.py", function="score"),
)
with Repository.create(root / "repo.git") as repository:
    commit = repository.commit_files({"recipe.py": recipe}, parent=None, message="baseline")
    try:
        asyncio.run(TaskMeter(task, repository, root / "home").measure(commit, seed=0))
    except Unmeasured as failed:
        print(failed.status, failed.reason)
'''


@pytest.mark.soak
@pytest.mark.parametrize(("filled", "status"), [(15, TrialStatus.INFRA_ERROR), (0, TrialStatus.CRASH)])
def test_a_full_disk(tmp_path: Path, filled: int, status: TrialStatus) -> None:
    disk, root = tmp_path / "disk", tmp_path / "root"
    disk.mkdir()
    root.mkdir()

    def small_disk() -> None:
        namespaces.enter([names.MOUNT] if os.geteuid() == 0 else [names.USER, names.MOUNT])
        linux.mount("none", "/", "none", linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("tmpfs", str(disk), "tmpfs", 0, "size=16m,mode=0777")

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), str(disk), str(filled * 2**20)],
        preexec_fn=small_disk,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.split(" ")[0] == status, done
    assert "No space left on device" in done.stdout
