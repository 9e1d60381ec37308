"""Seeds of fault simulation: the real ledger, runtime and loop under faults, and nothing lost. See docs/faults.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import shim
from tests.faults.plan import REGRESSIONS, make_plan
from tests.tiers import SEEDED, names_seeds

ROOT = Path(__file__).parents[2]
GATE, SOAK, PART = 5, 1000, 25
AT_ONCE = 5


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The seeds of the command line and no others, or five for the gate and a thousand for the soak."""
    if SEEDED not in metafunc.fixturenames:
        return
    start, count = metafunc.config.getoption("--seed"), metafunc.config.getoption("--seeds")
    if not names_seeds(metafunc.config):
        parts = [pytest.param(0, GATE, id=f"0-{GATE - 1}")]
        start, count = GATE, SOAK - GATE
        marks: tuple[pytest.MarkDecorator, ...] = (pytest.mark.soak,)
    else:
        parts, start, count, marks = [], start or 0, 1 if count is None else count, ()
    for first in range(start, start + count, PART):
        many = min(PART, start + count - first)
        parts.append(pytest.param(first, many, id=f"{first}-{first + many - 1}", marks=marks))
    metafunc.parametrize((SEEDED, "many"), parts)


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if shim.compiler() is None:
        pytest.skip("needs a C compiler, such as the package gcc with libc6-dev")


def run(first: int, many: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.faults", str(first), str(many), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=850)


@pytest.mark.timeout(900)
def test_no_fault_of_a_seed_loses_anything(first_seed: int, many: int) -> None:
    done = run(first_seed, many, f"--at-once={AT_ONCE}")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_what_seeds_have_found_stays_fixed() -> None:
    done = run(-len(REGRESSIONS), len(REGRESSIONS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_power_may_be_cut_at_any_call_of_a_life() -> None:
    done = run(0, 1, "--sweep=3")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("bug", "seed", "rule"),
    [
        # Commits are not waited for.
        ("unsynced", -2, "nothing_acknowledged_is_lost"),
        # A worker that was given up writes as if it had its job still.
        ("unfenced", -1, "no_attempt_is_counted_twice"),
    ],
)
def test_a_planted_bug_is_found(bug: str, seed: int, rule: str) -> None:
    done = run(seed, 1, f"--plant={bug}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"broken: {rule}" in done.stdout
    assert f"make soak AREA=faults SEED={seed} SEEDS=1" in done.stdout


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ((), ["0-4", *(f"{at}-{min(at + 24, 999)}" for at in range(5, 1000, 25))]),
        (("--seed=4711", "--seeds=1"), ["4711-4711"]),
        (("--seed=-3",), ["-3--3"]),
        (("--seed=5000", "--seeds=30"), ["5000-5024", "5025-5029"]),
    ],
)
def test_the_soak_runs_a_thousand_seeds_or_exactly_those_that_are_named(
    words: tuple[str, ...], parts: list[str]
) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
    ]
    command += ["-o", "addopts=--import-mode=importlib", "--area", "faults", *words, "tests/faults"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    found = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    seeds = [name for name in found if name.startswith(test_no_fault_of_a_seed_loses_anything.__name__)]
    assert seeds == [f"{test_no_fault_of_a_seed_loses_anything.__name__}[{part}]" for part in parts], (
        done.stdout
    )
    assert (len(found) > len(seeds)) == (not words)


def test_a_seed_always_has_the_same_plan() -> None:
    assert [str(make_plan(seed)) for seed in range(50)] == [str(make_plan(seed)) for seed in range(50)]
    assert len({str(make_plan(seed)) for seed in range(50)}) == 50


LOOK = """
import os, pathlib, sys
from ratchet.ledger.processes import is_running, process_identity
from tests.faults.shim import Action, Call, Place, Shim
directory = pathlib.Path(sys.argv[1])
other = os.getppid()
identity = process_identity(other)
shim = Shim(directory / "record", directory)
found = set()
for nth in range(1, 5):
    shim.clear()
    shim.add(1 << Call.OPEN, 1 << Place.ELSEWHERE, nth, nth, Action.FAIL, 24, 0)
    shim.enter()
    found.add(is_running(other, identity))
print(found)
"""


def test_a_process_without_descriptors_takes_no_other_for_dead(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(shim.library())}
    command = [sys.executable, "-c", LOOK, str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == "{None}", done.stdout + done.stderr
