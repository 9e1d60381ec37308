"""The check of a history finds each thing that it is there for: it is given histories with that wrong, one by one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.faults.history import check_history
from tests.faults.plan import Act, Plan
from tests.faults.world import REF, REPOSITORY, World, make_home

PLAN = Plan(
    0,
    "none",
    (
        Act("climb", "climb-1"),
        Act("steps", "steps-1", height=2),
        Act("job", "job-1", height=2, fails=1, bytes=70_000),
    ),
    (),
    30,
)


class Notes(list[dict[str, Any]]):
    def note(self, text: str) -> None:
        self.append(json.loads(text))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Notes]:
    """A home in which everything went well, and what was noted."""
    home, notes = tmp_path_factory.mktemp("home"), Notes()
    make_home(home, home / "ledger.db")
    World(notes, home, f"sqlite:///{home / 'ledger.db'}").live(PLAN.acts, PLAN.budget, last=True)
    return home, notes


def sql(text: str) -> Callable[[Path, Notes], None]:
    def change(home: Path, _notes: Notes) -> None:
        engine = sa.create_engine(f"sqlite:///{home / 'ledger.db'}")
        with engine.begin() as connection:
            connection.exec_driver_sql(text)
        engine.dispose()

    return change


def ref_goes_back(home: Path, _notes: Notes) -> None:
    git = ["git", "--git-dir", str(home / REPOSITORY), "update-ref", REF, f"{REF}~1"]
    subprocess.run(git, check=True)


def object_is_lost(home: Path, _notes: Notes) -> None:
    newest = max((home / REPOSITORY / "objects").glob("??/*"), key=lambda file: file.stat().st_mtime_ns)
    newest.unlink()


def artifact_is_torn(home: Path, _notes: Notes) -> None:
    file = next((home / "artifacts" / "sha256").glob("??/*"))
    file.write_bytes(file.read_bytes()[:100])


def promise(what: str, **more: Any) -> Callable[[Path, Notes], None]:
    return lambda _home, notes: notes.append({"what": what, **more})


COPY = (
    "INSERT INTO events (at, type, actor, job_id, data) SELECT at, type, actor, job_id, {data} FROM events"
    " WHERE type = 'worked' LIMIT 1"
)
CASES = {
    "a promise": (promise("acted", act="job-7"), "nothing_acknowledged_is_lost"),
    "a part": (sql("DELETE FROM events WHERE type = 'worked'"), "nothing_acknowledged_is_lost"),
    "a completed run": (promise("completed", run=9), "nothing_acknowledged_is_lost"),
    "a kept attempt": (promise("kept", attempt=9, commit="0" * 40), "nothing_acknowledged_is_lost"),
    "a failed job": (
        sql("UPDATE jobs SET status = 'failed' WHERE kind = 'job'"),
        "everything_ends_as_it_should",
    ),
    "a stuck run": (sql("UPDATE runs SET status = 'running' WHERE id = 2"), "everything_ends_as_it_should"),
    "a part twice": (sql(COPY.format(data="data")), "no_attempt_is_counted_twice"),
    "a try twice": (
        sql(
            "UPDATE events SET data = replace(data, '\"attempt\":1', '\"attempt\":2') WHERE type = 'job.retrying'"
        ),
        "no_attempt_is_counted_twice",
    ),
    "a tally": (sql("UPDATE job_tallies SET count = count + 1"), "no_attempt_is_counted_twice"),
    "a fenced write": (
        sql(COPY.format(data="json_replace(data, '$.delivery', 0)")),
        "no_fenced_worker_writes",
    ),
    "a status without its event": (
        sql("UPDATE steps SET status = 'blocked' WHERE id = 1"),
        "states_move_along_their_edges",
    ),
    "a forbidden edge": (
        sql(
            "UPDATE events SET data = json_replace(data, '$.from', 'cancelled') WHERE type = 'run.completed'"
        ),
        "states_move_along_their_edges",
    ),
    "an overspent budget": (
        sql("UPDATE usage_totals SET input_tokens = 40 WHERE scope = 'project'"),
        "no_budget_is_overspent",
    ),
    "a session charged twice": (
        sql("UPDATE usage_totals SET input_tokens = 20 WHERE scope = 'run'"),
        "no_budget_is_overspent",
    ),
    "a ref": (ref_goes_back, "refs_and_rows_agree"),
    "an object": (object_is_lost, "refs_and_rows_agree"),
    "a torn artifact": (artifact_is_torn, "the_ledger_is_sound"),
    "an open attempt": (sql("UPDATE attempts SET ended_at = NULL WHERE id = 1"), "the_ledger_is_sound"),
}


# One of each rule shows it in the gate.
SOAK = set(CASES) - {
    "a promise",
    "a failed job",
    "a try twice",
    "a fenced write",
    "a forbidden edge",
    "an overspent budget",
    "a ref",
    "a torn artifact",
}


def test_work_without_faults_breaks_nothing(told: tuple[Path, Notes]) -> None:
    home, notes = told
    assert check_history(home, f"sqlite:///{home / 'ledger.db'}", notes, PLAN) == []


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=[pytest.mark.soak] if each in SOAK else []) for each in CASES]
)
def test_what_is_wrong_is_found(case: str, told: tuple[Path, Notes], tmp_path: Path) -> None:
    change, rule = CASES[case]
    home, notes = tmp_path / "home", Notes(told[1])
    shutil.copytree(told[0], home)
    change(home, notes)
    found = check_history(home, f"sqlite:///{home / 'ledger.db'}", notes, PLAN)
    assert rule in {each.partition(":")[0] for each in found}
