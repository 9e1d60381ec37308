"""A run whose process is killed in the middle, and that is resumed: exactly the trials that were asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ratchet.kernel import NotFound
from ratchet.ledger import Ledger
from ratchet.ledger.research import find_research, get_standing
from ratchet.ledger.trial_pages import in_flight, latest_trials
from ratchet.research.checking import processes
from ratchet.research.checking.faults.scene import NAME
from ratchet.research.checking.finding import Finding, Grade, Part, Stopwatch

_TRIALS = 24
_KILLED_AFTER = 5
# A busy machine takes long for a few trials; what has died is seen at once.
_RUN_SECONDS = 600.0
_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.02
_WHAT = "the supervisor is killed, and resumed"
_EXPECTED = f"{_TRIALS} trials, none in flight, no process left"


def try_killed_supervisor(folder: Path, place: Path, url: str | None = None) -> Finding:
    """`folder` is the task's; `place` is where the run has its home, and its ledger unless that is at `url`."""
    watch = Stopwatch()
    home = place / "killed"
    with Ledger.open(url or f"sqlite:///{home / 'ledger.db'}", home / "artifacts") as ledger:
        home.mkdir(parents=True, exist_ok=True)
        problems, seen = _killed_and_resumed(ledger, home, folder)
    return Finding(
        part=Part.MACHINE,
        what=_WHAT,
        grade=Grade.FAILED if problems else Grade.OK,
        detail="; ".join(problems) or seen,
        hint="this is a fault of Ratchet; what the run has recorded is in its ledger" if problems else "",
        expected=_EXPECTED,
        seen=seen,
        seconds=watch.seconds,
    )


def _killed_and_resumed(ledger: Ledger, home: Path, folder: Path) -> tuple[list[str], str]:
    words = ("run", str(folder), "--name", NAME, "--engine", "search", "--trials", str(_TRIALS), "--json")
    with _started(ledger.url, home, *words) as process:
        _until(lambda: process.poll() is not None or _trials(ledger) >= _KILLED_AFTER, _RUN_SECONDS)
        family = processes.below(process.pid)
        process.kill()
        process.communicate()
    at_death = _trials(ledger)
    if not _until(lambda: not set(family) & set(processes.below(1)), _WAIT_SECONDS):
        return ["processes of the killed run live on"], f"killed at trial {at_death}"
    with _started(ledger.url, home, "resume", NAME, "--json") as process:
        try:
            said, complained = process.communicate(timeout=_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return [f"the resumed run did not end in {_RUN_SECONDS:g} s"], f"killed at trial {at_death}"
    seen = f"killed at trial {at_death}, then {_trials(ledger)} trials"
    problems = _problems(ledger)
    if process.returncode != 0:
        problems.append(f"resume exited with {process.returncode}: {complained.strip()[-300:]}")
    elif json.loads(said)["trials"] != _TRIALS:
        problems.append(f"resume told of {json.loads(said)['trials']} trials")
    if not 0 < at_death < _TRIALS:
        problems.append(f"it was killed at trial {at_death}, which proves nothing")
    return problems, seen


def _problems(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        run_id = find_research(tx, NAME)
        numbers = sorted(trial.number for trial in latest_trials(tx, run_id, limit=2 * _TRIALS))
        left = in_flight(tx, run_id)
    found = [] if numbers == list(range(_TRIALS + 1)) else [f"it has the trials {numbers}"]
    return [*found, f"{len(left)} trials are in flight"] if left else found


def _trials(ledger: Ledger) -> int:
    try:
        with ledger.read() as tx:
            return get_standing(tx, find_research(tx, NAME)).trials
    except NotFound:
        return 0


def _started(url: str, home: Path, *words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
    environment["RATCHET_DATABASE_URL"] = url
    return subprocess.Popen(
        [sys.executable, "-m", "ratchet.cli", "--home", str(home), "research", *words],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    watch = Stopwatch()
    while not condition():
        if watch.seconds > seconds:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
