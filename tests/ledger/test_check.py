import pytest
import sqlalchemy as sa

from ratchet.kernel import Direction, RunId, RunStatus, StepStatus, Usage
from ratchet.ledger import Budgets, Ledger, Spender, change_run, change_step
from ratchet.ledger.agents import create_agent
from ratchet.ledger.check import check
from ratchet.ledger.projects import add_project
from ratchet.ledger.research import open_research
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt
from ratchet.ledger.tables import jobs
from ratchet.ledger.usage import charge
from tests.ledger.conftest import MakeLedger

pytestmark = pytest.mark.postgresql_in_soak


def live_in(ledger: Ledger) -> Ledger:
    """Put something in every place that is checked."""
    with ledger.write() as tx:
        project = add_project(tx, "work")
        run = create_run(tx, "demo", "one", project_id=project)
        [step] = create_steps(tx, run, [("a", {})])
        change_run(tx, run, RunStatus.RUNNING)
        change_step(tx, step, StepStatus.RUNNING)
        attempt = open_attempt(tx, get_step(tx, step))
        ledger.artifacts.put(tx, b"output", name="out", run_id=run, attempt_id=attempt)
        tx.connection.execute(sa.insert(jobs).values(**JOB, run_id=run, status="started", process_id="here"))
        used = Usage(input_tokens=3, output_tokens=4)
        charge(tx, Spender(attempt, run, project), used, Budgets(), engine="test")
        charge(tx, Spender(None, run, project), used, Budgets(), engine="test")
    return ledger


JOB = {"kind": "demo", "queue": "default", "priority": 5, "attempt": 1, "max_attempts": 3, "delivery": 1}
JOB |= {"recoveries": 0, "created_at": 1, "due_at": 1, "payload": {}}


@pytest.fixture
def lived_in(ledger: Ledger) -> Ledger:
    return live_in(ledger)


def spoil(ledger: Ledger, statement: str) -> None:
    with ledger.write() as tx:
        tx.connection.execute(sa.text(statement))


def findings(ledger: Ledger) -> list[tuple[str, str]]:
    return [(finding.severity, finding.what) for finding in check(ledger).findings]


def test_a_sound_ledger_has_no_findings(lived_in: Ledger) -> None:
    report = check(lived_in)
    assert (report.findings, report.ok) == ((), True)


def test_an_unknown_status_is_found(lived_in: Ledger) -> None:
    spoil(lived_in, "UPDATE runs SET status = 'happy'")
    spoil(lived_in, "UPDATE steps SET status = 'sad'")
    assert findings(lived_in) == [
        ("error", "row 1 of runs has the unknown status 'happy'"),
        ("error", "row 1 of steps has the unknown status 'sad'"),
    ]
    assert not check(lived_in).ok


def test_an_attempt_left_open_by_a_final_step_is_found(lived_in: Ledger) -> None:
    spoil(lived_in, "UPDATE steps SET status = 'completed'")
    assert findings(lived_in) == [("warning", "attempt 1 is open, but its step 1 is completed")]
    assert check(lived_in).ok


@pytest.mark.parametrize("statement", ["DELETE FROM jobs", "UPDATE jobs SET ended_at = 2, status = 'failed'"])
def test_a_run_that_no_job_carries_is_found(lived_in: Ledger, statement: str) -> None:
    spoil(lived_in, statement)
    spoil(lived_in, "UPDATE steps SET status = 'pending'")
    [finding] = check(lived_in).findings
    assert (finding.severity, finding.what) == ("error", "run 1 is running, with no job for it")
    assert "`ratchet runs pause 1`, then `ratchet runs resume 1`" in finding.fix
    for status in ("paused", "blocked", "completed"):
        spoil(lived_in, f"UPDATE runs SET status = '{status}'")
        assert findings(lived_in) == []


def test_steps_that_run_without_a_job_are_found(lived_in: Ledger) -> None:
    spoil(lived_in, "UPDATE jobs SET ended_at = 2, status = 'failed'")
    assert findings(lived_in) == [
        ("error", "run 1 is running, and 1 of its steps are running with no job for them")
    ]


def test_a_row_that_names_another_without_the_database_seeing_to_it_is_found(lived_in: Ledger) -> None:
    with lived_in.write() as tx:
        create_agent(tx, "greeter", "greets")
        open_research(tx, RunId(1), task="t", score_field="s", direction=Direction.MIN, keep_policy="strict")
    spoil(lived_in, "UPDATE agents SET current = 'abc'")
    spoil(lived_in, "UPDATE research SET best = 7")
    assert findings(lived_in) == [
        ("error", "row 1 of agents names a version that is not there: abc"),
        ("error", "row 1 of research names a trial that is not there: 7"),
    ]


@pytest.mark.parametrize(
    ("statement", "scope"),
    [
        ("UPDATE usage_totals SET output_tokens = 5 WHERE scope = 'run'", "run 1"),
        ("DELETE FROM usage_totals WHERE scope = 'attempt'", "attempt 1"),
        ("UPDATE usage_totals SET scope_id = 77, trials = 1 WHERE scope = 'project'", "project 77"),
    ],
)
def test_a_total_that_is_not_the_sum_of_its_usage_is_found(
    lived_in: Ledger, statement: str, scope: str
) -> None:
    spoil(lived_in, statement)
    assert ("error", f"the usage total of {scope} is not the sum of its usage") in findings(lived_in)


def test_lost_and_damaged_artifacts_and_files_that_nobody_names_are_found(lived_in: Ledger) -> None:
    with lived_in.write() as tx:
        damaged, lost = (lived_in.artifacts.put(tx, b"%d" % n * 100_000, name="x").sha256 for n in (1, 2))
    with lived_in.artifacts.held():
        lived_in.artifacts.keep(b"named by nobody")
    lived_in.artifacts.path(damaged).write_bytes(b"3" * 100_000)
    lived_in.artifacts.path(lost).unlink()
    assert sorted(findings(lived_in)) == sorted(
        [
            ("error", f"artifact {damaged} does not match its hash"),
            ("error", f"artifact {lost} is missing"),
            ("info", "1 artifact files are not referenced"),
        ]
    )


def test_a_size_that_is_not_the_files_is_found(lived_in: Ledger) -> None:
    spoil(lived_in, "UPDATE artifacts SET size = 7")
    [(severity, what)] = findings(lived_in)
    assert severity == "error"
    assert what.endswith("has 6 bytes, not 7 as its row says")


def test_a_counter_that_would_give_a_number_twice_is_found(lived_in: Ledger) -> None:
    if lived_in.path is None:
        spoil(lived_in, "SELECT setval('events_id_seq', 1)")
    else:
        spoil(lived_in, "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'events'")
    [(severity, what)] = findings(lived_in)
    assert (severity, what.endswith("but its counter is at 1")) == ("error", True)


def test_a_row_that_names_nothing_is_found(make_ledger: MakeLedger) -> None:
    lived_in = live_in(make_ledger("sqlite"))  # PostgreSQL does not let one be made
    with lived_in.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.commit()
        connection.execute(sa.text("UPDATE steps SET run_id = 99"))
        connection.commit()
        connection.invalidate()
    assert ("error", "row 1 of steps names a row of runs that is not there") in findings(lived_in)


def test_a_missing_index_a_missing_column_and_a_missing_table_are_found(database_url: str, tmp_path) -> None:
    with Ledger.open(database_url, tmp_path / "artifacts") as ledger:
        for statement in (
            "DROP INDEX ix_events_type",
            "ALTER TABLE jobs DROP COLUMN error",
            "DROP TABLE budgets",
        ):
            spoil(ledger, statement)
        told = "\n".join(what for _, what in findings(ledger))
    for missing in ("add_index ix_events_type", "add_column jobs error", "add_table budgets"):
        assert missing in told


def test_tables_of_others_beside_ours_are_not_our_business(database_url: str, tmp_path) -> None:
    with Ledger.open(database_url, tmp_path / "artifacts") as ledger:
        spoil(ledger, "CREATE TABLE notification (id INTEGER PRIMARY KEY, text TEXT)")
        spoil(ledger, "CREATE INDEX notification_text ON notification (text)")
        assert findings(ledger) == []


def test_a_damaged_page_is_found(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("sqlite")
    assert ledger.path is not None
    with ledger.write() as tx:
        for number in range(300):
            tx.event("counted", data={"text": "x" * 500, "number": number})
    with ledger.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    ledger.engine.dispose()
    with ledger.path.open("r+b") as file:
        file.seek(file.seek(0, 2) // 2)
        file.write(b"\xff" * 4096)
    assert any(severity == "error" and "damaged" in what for severity, what in findings(ledger))
