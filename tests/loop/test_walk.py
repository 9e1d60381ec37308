"""How many modules a unit of work goes through, which is how many a reader has to open to follow it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MOST = {"a protocol step": 58, "a research trial": 58, "a change of an agent": 71}


@pytest.mark.soak
def test_a_unit_of_work_goes_through_few_modules() -> None:
    root = Path(__file__).parents[2]
    walk = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk", "--list"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=3600,
        check=True,
    )
    found = dict(re.findall(r"^(a .*?) +(\d+) +\d+$", walk.stdout, re.MULTILINE))
    assert found.keys() == MOST.keys()
    assert {name: most for name, most in MOST.items() if int(found[name]) > most} == {}, walk.stdout
