from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ratchet.doctor import Check, engines
from tests.doctor.conftest import Programs

NAMES = ["codex", "claude", "opencode", "gemini", "aider", "codemachine", "ollama"]


def found(programs: Programs, name: str) -> Check:
    return next(each for each in engines(programs.path) if each.name == f"engine {name}")


def test_absent_engines_are_warnings_that_tell_how_to_install_them(programs: Programs) -> None:
    checks = engines(programs.path)
    assert [each.name for each in checks] == [f"engine {name}" for name in NAMES]
    assert {each.status for each in checks} == {"warn"}
    assert all(each.mend and "://" not in each.mend for each in checks)


@pytest.mark.parametrize("name", NAMES)
def test_a_present_engine_tells_its_version(programs: Programs, name: str) -> None:
    programs.add(name, f'[ "$1" = --version ] && echo && echo "{name} 1.2.3" && echo more')
    check = found(programs, name)
    assert (check.status, check.detail) == ("ok", f"{name} 1.2.3 at {programs.directory / name}")


def test_an_engine_that_fails_or_cannot_start_is_a_warning_with_the_reason(programs: Programs) -> None:
    programs.add("codex", "echo 'no config' >&2; exit 7")
    programs.add("claude", "", interpreter="/does/not/exist")
    assert "ended with 7: no config" in found(programs, "codex").detail
    assert "cannot be run: No such file" in found(programs, "claude").detail
    assert found(programs, "claude").status == "warn"


def test_an_engine_that_hangs_is_killed_with_its_children(programs: Programs, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    programs.add("codex", f"sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; wait")
    programs.add("claude", f"sleep 300 & echo $! >> {pids}")  # leaves a child that holds its output
    started = time.monotonic()
    checks = {each.name: each for each in engines(programs.path)}
    assert 4 < time.monotonic() - started < 9
    assert "within 5 s" in checks["engine codex"].detail
    assert "within 5 s" in checks["engine claude"].detail
    numbers = [int(each) for each in pids.read_text().split()]
    assert len(numbers) == 3
    assert [number for number in numbers if is_alive(number)] == []


def test_an_engine_that_floods_is_stopped_early(programs: Programs) -> None:
    programs.add("codex", "yes")
    started = time.monotonic()
    assert found(programs, "codex").status == "warn"
    assert time.monotonic() - started < 4


def is_alive(pid: int) -> bool:
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return False
        if state == "Z":
            return False
        time.sleep(0.02)
    return True
