from __future__ import annotations

import pytest

from tests.cli.program import Program


@pytest.mark.slow
def test_demo_tells_its_story_on_stderr_and_the_outcome_as_json(plain_program: Program) -> None:
    done = plain_program("demo", "--json", seconds=120)
    assert done.code == 0, done.err
    assert done.json["run"]["status"] == "completed"
    assert done.json["done_twice"] == 0
    assert "kill -9" in done.err
