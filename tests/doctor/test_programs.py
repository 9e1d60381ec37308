from __future__ import annotations

import pytest

from ratchet.doctor import git, python
from tests.doctor.conftest import Programs


def test_the_real_git_and_python_are_fine() -> None:
    assert [each.status for each in (*git(), *python())] == ["ok", "ok"]


def test_no_git_is_a_failure_with_a_way_out(programs: Programs) -> None:
    (check,) = git(programs.path)
    assert (check.status, check.detail) == ("fail", "not found on the PATH")
    assert check.fix is not None
    assert "git 2.31" in check.fix


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("git version 2.30.9", "fail"),
        ("git version 2.31.0", "ok"),
        ("git version 2.39.5 (Apple Git-154)", "ok"),
        ("git version 3.0.0-rc1", "ok"),
        ("git version 1.99", "fail"),
        ("hello", "fail"),
        ("", "fail"),
    ],
)
def test_the_version_of_git_decides(programs: Programs, said: str, status: str) -> None:
    programs.add("git", f"echo '{said}'")
    assert [each.status for each in git(programs.path)] == [status]


def test_a_git_that_cannot_be_started_is_a_failure(programs: Programs) -> None:
    programs.add("git", "", interpreter="/does/not/exist")
    (check,) = git(programs.path)
    assert (check.status, "cannot be run" in check.detail) == ("fail", True)
