"""How long a step that is ready waits for its engine, and what the rest of a step costs besides it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.result import Goal, Result
from benchmarks.sample import percentile
from benchmarks.scale import Scale
from benchmarks.stage import DATABASES, SHOWN, Stage, place_of
from ratchet.config import Loaded, load_settings
from ratchet.kernel import RunStatus
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger.events import latest
from ratchet.ledger.projects import add_project, change_project, get_project
from ratchet.ledger.protocols import add_protocol_steps, change_protocol, get_protocol, list_protocol_steps
from ratchet.ledger.usage import stages_of_step
from ratchet.projects.clone import open_clone
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.protocols.jobs import add_kinds
from ratchet.runtime import Kinds, Runtime, Worker, open_ledger, open_runtime
from ratchet.runtime.attempts import ENDED

_GOAL_MS = 1000.0
_NAME = "0001-bench"
# The author's first line says when it came to work.
_AUTHOR = """\
import pathlib, sys, time
began = time.time()
step = sys.stdin.read().split("# Your step:")[1].split()[0]
pathlib.Path(f"{step}.txt").write_text(step)
print(began)
"""


def measure(stage: Stage, scale: Scale) -> Result:
    steps = max(4, scale.stamps // 3)
    result = Result(
        "protocols",
        f"{steps} steps one after the other, by an agent that writes one file, unreviewed, pushed to a bare remote",
        ["ms", "step ready to engine at work, p50", "p95", "whole step, p50"],
    )
    for database in DATABASES:
        waits, wholes = _measure(stage, database, steps)
        p50, p95 = percentile(waits, 0.5), percentile(waits, 0.95)
        result.rows.append([SHOWN[database], f"{p50:.0f}", f"{p95:.0f}", f"{percentile(wholes, 0.5):.0f}"])
        result.numbers[database] = {"ready to engine": waits, "whole step": wholes}
        goal = f"{SHOWN[database]}: from ready to the engine within {_GOAL_MS:.0f} ms"
        result.goals.append(Goal(goal, f"{p50:.0f} ms", p50 < _GOAL_MS))
    return result


def _measure(stage: Stage, database: str, steps: int) -> tuple[list[float], list[float]]:
    made = stage.new_home(database)
    loaded = _settings(made)
    remote = _remote(made.home)
    kinds = Kinds()
    add_kinds(kinds)
    with open_ledger(loaded) as ledger:
        runtime = open_runtime(loaded, ledger, kinds)
        run_id = _prepared(runtime, remote, steps)
        worker = Worker(runtime)
        worker.start()
        try:
            _await(ledger, run_id)
            return _times(ledger, run_id)
        finally:
            worker.stop(drain_seconds=0)


def _settings(made: Loaded) -> Loaded:
    # Braces are for placeholders, and the sandbox shows a session no temporary files of others.
    argv = json.dumps([sys.executable, "-c", _AUTHOR.replace("{", "{{").replace("}", "}}")])
    (made.home / "ratchet.toml").write_text(
        f'[protocols]\nengine = "author"\n[engines.command.author]\nargv = {argv}\nnetwork = false\n'
    )
    return load_settings(place_of(made), env={})


def _remote(home: Path) -> Path:
    remote, seed = home / "remote.git", home / "seed"
    identity = ["-c", "user.name=Ratchet", "-c", "user.email=ratchet@localhost"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(seed)], check=True)
    (seed / "README.md").write_text("# A project\n")
    subprocess.run(["git", "-C", str(seed), "add", "."], check=True)
    subprocess.run(["git", "-C", str(seed), *identity, "commit", "-qm", "begin"], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(seed), str(remote)], check=True)
    return remote


def _prepared(runtime: Runtime, remote: Path, steps: int) -> int:
    """A protocol with a branch and steps, started."""
    with runtime.ledger.write(actor="bench") as tx:
        project = add_project(tx, "bench", git_url=str(remote), base_branch="main")
        change_project(tx, project, facts={"checks": []})
        run_id = create_protocol(tx, runtime, project, _NAME)
        found = get_project(tx, project)
    with open_clone(runtime, found) as clone:
        base = clone.fetch("main")
        root = f".protocols/{_NAME}"
        files = {f"{root}/{n:02d}-step.md": f"Write step {n}.\n".encode() for n in range(steps)}
        files |= {f"{root}/{each}.md": b"# Bench\n" for each in ("plan", "context", "log")}
        planned = clone.repository.commit_files(files, parent=base, message="plan")
        clone.repository.advance(f"refs/heads/{_NAME}", planned, expected=None)
    rows = [
        {
            "name": f"{n:02d}-step",
            "step_index": n,
            "step_type": "work",
            "spec": {"id": f"step{n}", "prompt_ref": f"{n:02d}-step.md", "qa": {"policy": "skip"}},
        }
        for n in range(steps)
    ]
    with runtime.ledger.write(actor="bench") as tx:
        change_protocol(tx, run_id, base_commit=base)
        add_protocol_steps(tx, run_id, rows)
        start_protocol(tx, runtime, run_id)
    return run_id


def _await(ledger: Ledger, run_id: int, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with ledger.read() as tx:
            found = get_protocol(tx, run_id)
        if found.status is RunStatus.COMPLETED:
            return
        if found.status.stands or time.monotonic() > deadline:
            raise RuntimeError(f"the protocol is {found.status}: {found.reason}")
        time.sleep(0.05)


def _times(ledger: Ledger, run_id: int) -> tuple[list[float], list[float]]:
    """For each step but the first: from the end of the one before to its engine's first line, and to its own end."""
    with ledger.read() as tx:
        steps = list_protocol_steps(tx, run_id)
        ends = {
            each.step_id: each.at
            for each in latest(
                tx.connection, where=EventFilter(run_id=run_id, type="step.completed"), limit=1000
            )
        }
        began = {
            each.step_id: float(stages_of_step(tx, each.step_id, ENDED)[-1]["session"]["text"]) * 1000
            for each in steps
        }
    waits, wholes = [], []
    for before, step in itertools.pairwise(steps):
        waits.append(began[step.step_id] - ends[before.step_id])
        wholes.append(float(ends[step.step_id] - ends[before.step_id]))
    return waits, wholes
