"""A log that is bounded, and never a reason to fail."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from ratchet.agentkit import log
for number in range(int(__import__("sys").argv[1])):
    log.info("line %06d %s", number, "x" * 1000)
log.warning("bad %d arguments", "one", "two")
print("went on")
"""


def _logged(directory: Path, lines: int, file: str = "runner.py") -> str:
    (directory / file).write_text(PROGRAM)
    done = subprocess.run([sys.executable, file, str(lines)], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("role", ["runner", "tuner"])
def test_each_server_has_its_own_log(tmp_path: Path, role: str) -> None:
    assert _logged(tmp_path, 2, f"{role}.py") == "went on\n"
    written = (tmp_path / "logs" / f"{role}.log").read_text()
    assert [line[25:47] for line in written.splitlines()[:2]] == [
        "INFO agent: line 00000",
        "INFO agent: line 00000",
    ]
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [f"{role}.log"]


@pytest.mark.soak
def test_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    _logged(tmp_path, 22_000)
    files = sorted((tmp_path / "logs").iterdir())
    assert [path.name for path in files] == ["runner.log", *(f"runner.log.{number}" for number in (1, 2, 3))]
    assert sum(path.stat().st_size for path in files) <= 16 * 1024 * 1024
    assert "line 021999" in files[0].read_text()


def test_a_full_disk_costs_only_lines(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "runner.log").symlink_to("/dev/full")
    assert _logged(tmp_path, 3) == "went on\n"


def test_a_log_that_cannot_be_made_costs_only_lines(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    assert _logged(tmp_path, 3) == "went on\n"


def test_a_program_that_is_no_server_has_no_log(tmp_path: Path) -> None:
    assert _logged(tmp_path, 1, "other.py") == "went on\n"
    assert not (tmp_path / "logs").exists()
