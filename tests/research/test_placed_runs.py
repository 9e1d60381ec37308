"""A run whose trials are measured elsewhere is the run that it would have been here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.kernel import RunStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import in_flight, latest_trials
from ratchet.placement import LOCAL, Brokered, Placement
from ratchet.research.measurement import TaskMeter
from ratchet.research.measurement.checkout import CANDIDATE_BOUNDS
from ratchet.research.measurement.result import Measurement, Unmeasured
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.tasks import initial_files, pin_task, pinned_task, read_task
from ratchet.runtime import Runtime
from ratchet.workspaces import Repository
from tests.research.hill import RECIPE
from tests.runtime.fleet import Fleet
from tests.waiting import eventually

TRIALS = 24
LISTS = """[task]
name = "lists"
recipe = ["recipe"]

[trial]
command = ["{python}", "-I", "recipe/main.py"]
seconds = 20.0

[evaluator]
directory = "evaluator"
function = "score"
file = "evaluate.py"
seconds = 20.0
"""
MAIN = """import os
for name in sorted(os.listdir("recipe")):
    print(name, os.access(f"recipe/{name}", os.X_OK), open(f"recipe/{name}").read().strip()[-5:])
"""
SCORE = """def score(given):
    import zlib
    return {"score": zlib.crc32(open(given["trial"]["stdout"], "rb").read())}
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Brokered]:
    command = [sys.executable, "-P", "-m", "ratchet.placement.processes", "2"]
    placement = Brokered(command, str(tmp_path / "cache of nodes"))
    yield placement
    placement.close()


def meter(folder: Path, place: Path, placement: Placement) -> tuple[TaskMeter, Repository, str]:
    """A meter of a run's copy of a task, and its first commit."""
    pinned = pin_task(read_task(folder), place / "pinned")
    repository = Repository.create(place / "repo.git", bounds=CANDIDATE_BOUNDS)
    base = repository.commit_files(dict(initial_files(pinned)), parent=None, message="baseline")
    return TaskMeter(pinned, repository, place / "home", placement=placement), repository, base


def found(meter: TaskMeter, commit: str) -> Measurement | Unmeasured:
    try:
        return asyncio.run(meter.measure(commit, seed=3))
    except Unmeasured as unmeasured:
        return unmeasured


def test_a_node_finds_what_is_found_here(nodes: Brokered, hill: Path, tmp_path: Path) -> None:
    here, repository, base = meter(hill, tmp_path, LOCAL)
    there = placed_elsewhere(tmp_path, repository, nodes)
    recipes = [RECIPE.replace("X = 0.9", f"X = {value}") for value in ("0.3", "7.0", "1 / 0")]
    made = [changed(repository, base, {"recipe.py": each}) for each in recipes]
    for commit in (base, *made):
        near, far = found(here, commit), found(there, commit)
        assert essence(far) == essence(near)
        assert ("node" in far.facts, "node" in near.facts) == (True, False)


def test_a_commit_is_on_a_node_what_it_is_here(nodes: Brokered, tmp_path: Path) -> None:
    folder = tmp_path / "lists"
    for name, text in {"main.py": MAIN, "old.py": "old = 1\n"}.items():
        (folder / "recipe").mkdir(parents=True, exist_ok=True)
        (folder / "recipe" / name).write_text(text)
    (folder / "evaluator").mkdir()
    (folder / "evaluator" / "evaluate.py").write_text(SCORE)
    (folder / "task.toml").write_text(LISTS)
    here, repository, base = meter(folder, tmp_path, LOCAL)
    there = placed_elsewhere(tmp_path, repository, nodes)
    more = changed(
        repository, base, {"recipe/new.py": "new = 2\n", "recipe/run.sh": "#!\n"}, ["recipe/run.sh"]
    )
    less = changed(repository, more, {"recipe/old.py": None, "recipe/new.py": "new = 3\n"})
    near = [essence(found(here, commit)) for commit in (base, more, less, base)]
    assert [essence(found(there, commit)) for commit in (base, more, less, base)] == near
    assert len(set(near)) == 3


@pytest.mark.parametrize(
    ("corpus", "why"), [("", "CORPUS is not set"), ("other", "its task, its data or its programs are others")]
)
def test_nodes_with_other_data_are_refused_by_name(
    corpus: str, why: str, nodes: Brokered, hill: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own", "other"):
        (tmp_path / name).write_text(name)
    description = hill / "task.toml"
    description.write_text(
        f'{description.read_text()}\n[data.corpus]\npath = "$CORPUS"\nreaders = ["evaluator"]\n'
    )
    monkeypatch.setenv("CORPUS", str(tmp_path / corpus) if corpus else "")
    # What is started now has that corpus for good.
    asyncio.run(nodes.nodes())
    monkeypatch.setenv("CORPUS", str(tmp_path / "own"))
    here, repository, base = meter(hill, tmp_path, LOCAL)
    refused = found(placed_elsewhere(tmp_path, repository, nodes), base)
    assert isinstance(refused, Unmeasured)
    assert refused.status is TrialStatus.INFRA_ERROR
    assert refused.reason.startswith("no node of the cluster can do measure")
    assert why in refused.reason
    assert isinstance(found(here, base), Measurement)


def essence(found: Measurement | Unmeasured) -> tuple[object, ...]:
    if isinstance(found, Measurement):
        return found.commit, found.seed, found.score, *found.measurements.items()
    return found.status, found.reason


def changed(
    repository: Repository, parent: str, files: dict[str, str | None], executable: list[str] | None = None
) -> str:
    content = {name: None if text is None else text.encode() for name, text in files.items()}
    return repository.commit_files(content, parent=parent, message="change", executable=executable or [])


def placed_elsewhere(place: Path, repository: Repository, placement: Placement) -> TaskMeter:
    return TaskMeter(pinned_task(place / "pinned"), repository, place / "home", placement=placement)


@pytest.mark.soak
@pytest.mark.parametrize("killer", ["node", "worker"])
def test_a_placed_run_whose_nodes_or_workers_are_killed_makes_exactly_its_trials(
    killer: str, runtime: Runtime, ledger: Ledger, fleet: Fleet, hill: Path, tmp_path: Path
) -> None:
    chance = random.Random(killer)
    cache = tmp_path / "cache of nodes"
    flags = {"placement__kind": "processes", "placement__cache": str(cache), "placement__nodes": 2}
    wanted = ResearchRequest(task=str(hill), engine="search", trials=TRIALS, parallel=2)
    run_id = start_research(runtime, wanted)
    worker = fleet.add(**flags)
    for least in (2, 9, 16):
        eventually(lambda least=least: made(ledger, run_id) > least)
        if killer == "node":
            eventually(lambda worker=worker: kill_one(nodes_of(worker), chance))
        else:
            fleet.kill(worker)
            worker = fleet.add(**flags)
    eventually(lambda: status(ledger, run_id).final)
    with ledger.read() as tx:
        run, standing = get_run(tx, run_id), get_standing(tx, run_id)
        rows = latest_trials(tx, run_id, limit=1000)
        assert in_flight(tx, run_id) == []
    assert run.status is RunStatus.COMPLETED, run.reason
    assert standing.trials == TRIALS
    assert [row.number for row in reversed(rows)] == list(range(TRIALS + 1))
    assert {row.status for row in rows} <= {TrialStatus.BASELINE, TrialStatus.KEEP, TrialStatus.DISCARD}
    # The task and the baseline; whoever carries the run sends nothing else by hash.
    assert len(list((cache / "contents").iterdir())) == 2


def made(ledger: Ledger, run_id: int) -> int:
    with ledger.read() as tx:
        return get_standing(tx, run_id).trials


def status(ledger: Ledger, run_id: int) -> RunStatus:
    with ledger.read() as tx:
        return get_run(tx, run_id).status


def nodes_of(worker: int) -> list[int]:
    """The processes of nodes that a worker's broker has started."""
    return [each for broker in children(worker) if is_broker(broker) for each in children(broker)]


def kill_one(pids: list[int], chance: random.Random) -> bool:
    with contextlib.suppress(IndexError, ProcessLookupError):
        os.kill(chance.choice(pids), signal.SIGKILL)
        return True
    return False


def is_broker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"ratchet.placement.processes" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        lists = [each.read_text().split() for each in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(each) for children in lists for each in children]
    return []
