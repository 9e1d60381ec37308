from __future__ import annotations

import pytest

from ratchet.workflows.evolution.parts import same_program

BASE = 'def run(a):\n    """Adds one."""\n    return a + 1\n'


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("def run( a ):  # plus one\n    return (a\n        + 1)\n", True),
        ("def run(a):\n    return a + 2\n", False),
        ("def run(b):\n    return b + 1\n", False),
        ("def run(a:\n", False),
        ("x = '\0'", False),
    ],
)
def test_programs_are_the_same_but_for_comments_and_layout(other: str, same: bool) -> None:
    assert same_program(BASE, other) is same
