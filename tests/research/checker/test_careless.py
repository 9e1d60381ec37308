"""A meter that runs recipes as they are, with no sandbox around them, is found by every probe."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.checker.attacks import Assault
from ratchet.research.checker.bench import Grade, Honesty, TaskCheck, open_bench
from ratchet.research.checker.forgeries import REACHES
from ratchet.research.checker.hostile import ENDS, EXHAUSTS
from ratchet.research.checker.outside import Outside
from ratchet.research.measurement.result import Measurement, Unmeasured
from ratchet.research.tasks import find_task, initial_files
from ratchet.workspaces import Repository
from tests.research.checker.folders import write_command

ATTACKS = {each.name: each for each in (*REACHES, *EXHAUSTS, *ENDS)}


@dataclass
class CarelessMeter:
    """Runs a recipe in this environment, waits for the process it started, and scores whatever it is."""

    repository: Repository
    place: Path
    score: float = 480.0
    forgets: bool = True

    hash = "careless"

    async def preflight(self, commit: str, base: str) -> None:
        """Accepts everything."""

    async def measure(self, commit: str, *, seed: int, held_out: bool = False) -> Measurement:
        source = self.repository.read_file(commit, "recipe/main.py").decode()
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", source, str(self.place / "inputs"), str(self.place)],
            cwd=self.place,
            capture_output=True,
            text=True,
            check=False,
        )
        facts = {"trials": [{"stdout": done.stdout, "stderr": done.stderr}]}
        if not self.forgets and done.returncode != 0:
            # The next candidate pays for what this one did.
            self.score += 1
        if done.returncode != 0:
            raise Unmeasured(TrialStatus.CRASH, "it failed", facts=facts)
        return Measurement(commit=commit, seed=seed, held_out=held_out, score=self.score, facts=facts)


def tried(tmp_path: Path, name: str, *, forgets: bool = True, slack_seconds: float = 60.0) -> TaskCheck:
    folder = write_command(tmp_path / "sums")
    (tmp_path / "place").mkdir()

    async def attack() -> TaskCheck:
        async with open_bench(find_task(str(folder)), tmp_path / "place") as sandboxed:
            meter = CarelessMeter(sandboxed.repository, folder, forgets=forgets)
            bench = replace(sandboxed, meter=meter)
            honesty = Honesty(bench, 0)
            await honesty.learn()
            with Outside(bench=bench, real_home=None).watched() as outside:
                assault = Assault(bench, outside, honesty, initial_files(bench.task), slack_seconds)
                return await assault.try_code(ATTACKS[name])

    return asyncio.run(attack())


@pytest.mark.soak
def test_files_that_can_be_read_are_found(tmp_path: Path) -> None:
    found = tried(tmp_path, "reads evaluator, task, home and ledger")
    assert found.grade is Grade.FAILED
    assert "evaluator/evaluate.py" in found.detail
    assert "ledger.db" in found.detail


def test_secrets_that_can_be_read_are_found(tmp_path: Path) -> None:
    found = tried(tmp_path, "looks for secrets in environments")
    assert "a variable of Ratchet's environment is known to it" in found.detail


def test_calls_that_come_through_are_found(tmp_path: Path) -> None:
    found = tried(tmp_path, "calls over the network")
    for name in ("TCP", "UDP", "an abstract socket", "a socket"):
        assert f"it called over {name}" in found.detail


def test_processes_that_live_on_are_found_and_ended(tmp_path: Path) -> None:
    found = tried(tmp_path, "leaves grandchildren behind")
    assert "2 of its processes live on" in found.detail


def test_a_recipe_that_spoils_the_next_measurement_is_found(tmp_path: Path) -> None:
    found = tried(tmp_path, "raises", forgets=False)
    assert found.grade is Grade.FAILED
    assert found.detail == "the honest recipe scored 480.0 before and 481.0 after it"
    assert json.dumps(found.to_dict())


def test_a_recipe_that_holds_everybody_up_is_found(tmp_path: Path) -> None:
    found = tried(tmp_path, "raises", slack_seconds=-1000.0)
    assert found.grade is Grade.FAILED
    assert found.detail.startswith("it held Ratchet up for")
