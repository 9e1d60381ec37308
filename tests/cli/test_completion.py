from __future__ import annotations

import pytest

from tests.cli.program import Program


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(plain_program: Program, shell: str) -> None:
    done = plain_program("completion", shell)
    assert done.code == 0
    assert "_RATCHET_COMPLETE" in done.out


def test_an_unknown_shell_is_misuse(plain_program: Program) -> None:
    done = plain_program("completion", "csh")
    assert done.code == 2
    assert "'bash', 'zsh', 'fish'" in done.err


def test_the_shell_is_told_the_commands(plain_program: Program) -> None:
    plain_program.env |= {
        "_RATCHET_COMPLETE": "bash_complete",
        "COMP_WORDS": "ratchet queue ",
        "COMP_CWORD": "2",
    }
    assert "plain,jobs" in plain_program().out.splitlines()
