import gzip
import os
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ratchet.kernel import (
    Conflict,
    Direction,
    LedgerCorrupt,
    LedgerUnavailable,
    Limits,
    Misuse,
    NotFound,
    RunStatus,
    StepStatus,
    TrialStatus,
    Usage,
)
from ratchet.ledger import Budgets, EventFilter, Ledger, Spender, change_run, change_step
from ratchet.ledger import events as log
from ratchet.ledger.agent_access import add_key, put_sealed
from ratchet.ledger.agents import add_version, create_agent
from ratchet.ledger.archive import TarWriter
from ratchet.ledger.backup import Manifest, Writer, backup
from ratchet.ledger.check import check, counters
from ratchet.ledger.evals import add_calls, add_eval
from ratchet.ledger.production import add_remark, begin_split, count_calls, note_incident
from ratchet.ledger.projects import add_project, put_ciphertext
from ratchet.ledger.protocols import add_protocol, add_protocol_steps
from ratchet.ledger.research import add_lesson, open_research, record_specialist
from ratchet.ledger.restore import restore
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt
from ratchet.ledger.tables import (
    approvals,
    artifact_contents,
    artifacts,
    ci_checks,
    clarifications,
    events,
    job_starts,
    job_tallies,
    jobs,
    metadata,
    processes,
    queues,
    schedules,
    step_results,
    tool_buffers,
    tool_calls,
    tool_starts,
    tool_versions,
    tools,
    triggers,
    webhook_deliveries,
    workflows,
)
from ratchet.ledger.trials import Ending, Submission, end_trial, open_trial
from ratchet.ledger.usage import add_session, charge, finish_stage, hold, set_budget
from tests.ledger.actors import acting, append_steadily, heard, place_of, put_back, take_backup
from tests.ledger.conftest import MakeLedger
from tests.ledger.test_hostile_backups import LATER, Archive

HOSTILE = 'NUL \x00, lone \ud800, "quotes", é💥\n'
JOB = {
    "kind": "demo",
    "queue": "default",
    "priority": 5,
    "payload": {"deep": [HOSTILE, 1.5, None, True, 2**60]},
    "attempt": 1,
    "max_attempts": 3,
    "delivery": 4,
    "recoveries": 0,
    "created_at": 1,
    "due_at": 2,
}
TOOL = {
    "folder": "",
    "name": HOSTILE,
    "source": HOSTILE,
    "removed": False,
    "current_id": 1,
    "revision": 1,
    "created_at": 1,
    "updated_at": 2,
}
TOOL_VERSION = {
    "tool_id": 1,
    "version": "1.0.0",
    "hash": "a" * 64,
    "definition": {"text": HOSTILE},
    "change_type": "patch",
    "origin": "file",
    "status": "promoted",
    "simulated": False,
    "created_at": 1,
    "promoted_at": 2,
    "calls": 1,
    "failures": 0,
    "wall_ms": 1.5,
    "cost_microusd": 0,
    "tokens": 3,
    "scored": 0,
    "score_sum": 0.0,
}
TOOL_CALL = {
    "tool_id": 1,
    "version_id": 1,
    "ok": True,
    "wall_ms": 1.5,
    "cost_microusd": 0,
    "tokens": 3,
    "input": [HOSTILE],
    "simulated": False,
    "at": 1,
}
WORKFLOW = {
    "name": HOSTILE,
    "version": "1.0.0",
    "hash": "a" * 64,
    "description": HOSTILE,
    "spec": {"text": HOSTILE},
    "origin": "file",
    "removed": False,
    "created_at": 1,
}
PROCESS = {
    "role": "worker",
    "host": "h",
    "pid": 1,
    "identity": "",
    "version": "0",
    "state": "alive",
    "slots": 1,
    "busy": 0,
    "beat": 1,
    "started_at": 1,
    "beat_at": 1,
    "metrics": {"sum": 1.5},
}


PROJECT = {
    "git_url": HOSTILE,
    "local_path": HOSTILE,
    "base_branch": "main",
    "ci_provider": "github",
    "default_models": {"exec": HOSTILE},
    "facts": {"stack": [HOSTILE]},
    "remote": HOSTILE,
    "token_hash": "a" * 64,
    "setup_run_id": 1,
    "archived_at": 3,
}
PROTOCOL = {
    "number": 7,
    "description": HOSTILE,
    "base_commit": "c" * 40,
    "template_config": {"text": HOSTILE},
    "spec": {"text": HOSTILE},
    "spec_errors": [HOSTILE],
    "pull_request": {"url": HOSTILE},
}
PROTOCOL_STEP = {
    "name": HOSTILE,
    "step_index": 0,
    "step_type": "work",
    "policy": [{"text": HOSTILE}],
    "runtime_state": {"text": HOSTILE},
    "depends_on": [HOSTILE],
    "commit": "c" * 40,
}
CLARIFICATION = {
    "key": HOSTILE,
    "question": HOSTILE,
    "options": [HOSTILE],
    "recommended": True,
    "applies_to": "qa",
    "blocking": True,
    "answer": {"text": HOSTILE},
    "answered_by": HOSTILE,
    "answered_at": 2,
    "created_at": 1,
}
DELIVERY = {"provider": "github", "delivery": HOSTILE, "event": HOSTILE, "outcome": HOSTILE, "at": 1}
CI_CHECK = {
    "commit": "c" * 40,
    "name": HOSTILE,
    "provider": "gitlab",
    "state": "failed",
    "url": HOSTILE,
    "detail": {"log": HOSTILE},
    "at": 1,
    "updated_at": 2,
}
CALL = {
    "commit": "c" * 40,
    "server": "runner",
    "tool": HOSTILE,
    "arguments": {"text": HOSTILE},
    "result": {"text": HOSTILE},
    "outcome": "ok",
    "milliseconds": 3,
    "is_whole": True,
}
APPROVAL = {
    "once": HOSTILE,
    "subject": "s",
    "question": HOSTILE,
    "data": {},
    "status": "pending",
    "created_at": 1,
}


def fill(ledger: Ledger) -> None:
    """Something in every table, with every kind of value."""
    with ledger.write(actor=HOSTILE, request_id="r-1") as tx:
        project = add_project(tx, "work", **PROJECT)
        run = create_run(tx, "demo", HOSTILE, project_id=project, spec={"text": HOSTILE})
        [first] = create_steps(tx, run, [("a", {"n": 1})])
        change_run(tx, run, RunStatus.RUNNING, reason=HOSTILE)
        change_step(tx, first, StepStatus.RUNNING)
        attempt = open_attempt(tx, get_step(tx, first))
        ledger.artifacts.put(tx, b"output", name="out", run_id=run, attempt_id=attempt, pinned=True)
        ledger.artifacts.put(tx, os.urandom(100_000), name="noise", run_id=run)
        tx.event("large", data={"text": HOSTILE * 10_000})
        charge(tx, Spender(attempt, run, project), Usage(1, 2, 3, 4, 5, 6), Budgets(), engine="test")
        set_budget(tx, "run", run, Limits(tokens=10, cost_usd=0.1))
        add_session(tx, role="author", engine=HOSTILE, usage=Usage(), run_id=run, attempt_id=attempt)
        finish_stage(tx, attempt, "proposed", {"text": HOSTILE})
        hold(tx, Spender(attempt, run, project), Budgets(limits={"attempt": Limits(tokens=10)}))
        open_research(
            tx, run, task=HOSTILE, score_field="score", direction=Direction.MIN, keep_policy="strict"
        )
        trial = open_trial(
            tx,
            run,
            Submission(specialist=HOSTILE, hypothesis=HOSTILE, commit="c", parent=None),
            baseline=True,
        )
        end_trial(tx, run, trial.number, Ending(status=TrialStatus.BASELINE, score=0.1))
        record_specialist(tx, run, HOSTILE, Usage(1, 2, 3, 4, 5, 6), resume=HOSTILE)
        add_lesson(tx, run, HOSTILE, HOSTILE, trial=0)
        agent = create_agent(tx, "greeter", HOSTILE, engine=HOSTILE)
        add_version(
            tx, agent, "c" * 40, "0.0.0", parent=None, summary=HOSTILE, tools=[{"name": HOSTILE}], run_id=run
        )
        made = add_eval(
            tx,
            agent.id,
            server="runner",
            tool=HOSTILE,
            arguments={},
            expect={"contains": HOSTILE},
            by=HOSTILE,
        )
        add_calls(tx, [{**CALL, "agent_id": agent.id, "created_at": made.created_at}])
        count_calls(tx, agent.id, [CALL])
        wrong = {"kind": "failed", "message": HOSTILE, "expect": {HOSTILE: HOSTILE}, "is_whole": True}
        wrong |= {name: CALL[name] for name in ("server", "tool", "arguments")}
        note_incident(tx, agent, ["f" * 64, "e" * 64], at_commit="c" * 40, **wrong)
        add_remark(tx, agent.id, "c" * 40, "d" * 64, message=HOSTILE, severity="low", most=9, again_after=0)
        counts = dict.fromkeys(("base_current", "base_current_wrong", "base_candidate"), 0)
        counts |= {"base_candidate_wrong": 0, "wanted_calls": 200, "percent": 10}
        begin_split(tx, replace(agent, current="c" * 40), candidate="c" * 40, margin=0.05, **counts)
        add_key(tx, agent, HOSTILE, scopes=["call"], hash="a" * 64, by=HOSTILE)
        put_sealed(tx, agent, "TOKEN", HOSTILE)
        insert = tx.connection.execute
        insert(sa.insert(tools).values(**TOOL))
        insert(sa.insert(tool_versions).values(**TOOL_VERSION, run_id=run))
        insert(sa.insert(tool_calls).values(**TOOL_CALL, run_id=run))
        insert(sa.insert(tool_starts).values(tool_id=1, at=1))
        insert(sa.insert(tool_buffers).values(name=HOSTILE, value=[HOSTILE], at=1))
        insert(sa.insert(workflows).values(**WORKFLOW, run_id=run))
        put_ciphertext(tx, project, HOSTILE, HOSTILE)
        add_protocol(tx, run, project, HOSTILE, base_branch=HOSTILE, **PROTOCOL)
        [work] = add_protocol_steps(tx, run, [PROTOCOL_STEP])
        insert(
            sa.insert(clarifications).values(**CLARIFICATION, project_id=project, run_id=run, step_id=work)
        )
        insert(sa.insert(webhook_deliveries).values(**DELIVERY, project_id=project, run_id=run))
        insert(sa.insert(ci_checks).values(**CI_CHECK, project_id=project))
        insert(sa.insert(step_results).values(key="k", value={"text": HOSTILE}, metrics={}, created_at=1))
        insert(sa.insert(approvals).values(**APPROVAL, run_id=run, attempt_id=attempt))
        insert(sa.insert(jobs).values(**JOB, run_id=run, status="queued", key="k", once="o"))
        insert(sa.insert(jobs).values(**JOB, status="started", process_id="gone", stop="please"))
        insert(sa.insert(jobs).values(**JOB, status="finished", ended_at=9, result=[HOSTILE]))
        insert(sa.insert(job_tallies).values(queue="default", status="finished", process_id="gone", count=1))
        insert(sa.insert(queues).values(name="default", paused=True))
        insert(sa.insert(job_starts).values(job_id=2, delivery=4, queue="default", at=1))
        insert(
            sa.insert(schedules).values(
                name="nightly",
                cron="0 0 * * *",
                timezone="UTC",
                kind="demo",
                queue="default",
                payload={},
                paused=False,
                created_at=1,
            )
        )
        insert(
            sa.insert(triggers).values(
                name=HOSTILE,
                kind="redis",
                workflow="w",
                source={"url": HOSTILE},
                inputs={"n": 1},
                paused=False,
                created_at=1,
                started=3,
                refused=1,
            )
        )
        insert(sa.insert(processes).values(id="gone", **PROCESS))
        insert(sa.insert(processes).values(id="retired", **{**PROCESS, "state": "retired"}))


def rows(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    """Everything in the ledger, apart from what restoring changes on purpose."""
    with ledger.read() as tx:
        found = {
            table.name: [
                dict(row)
                for row in tx.connection.execute(
                    sa.select(table).order_by(*table.primary_key.columns)
                ).mappings()
            ]
            for table in metadata.sorted_tables
        }
    found["events"] = [row for row in found["events"] if row["type"] != "ledger.restored"]
    found["processes"] = [row for row in found["processes"] if row["id"] == "retired"]
    return found


def contents(ledger: Ledger) -> dict[str, bytes]:
    """The contents of all artifacts, wherever they are, and of files that nobody names."""
    with ledger.read() as tx:
        named = set(tx.connection.execute(sa.select(artifacts.c.sha256)).scalars())
    found = {sha256: file.read_bytes() for sha256, file in ledger.artifacts.stored()}
    for sha256 in named - set(found):
        with suppress(NotFound, LedgerCorrupt):
            found[sha256] = ledger.artifacts.read(sha256)
    return found


@pytest.mark.soak
@pytest.mark.parametrize("source_kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("target_kind", ["sqlite", "postgresql"])
def test_a_backup_brings_everything_to_either_database(
    make_ledger: MakeLedger, tmp_path: Path, source_kind: str, target_kind: str
) -> None:
    source, target = make_ledger(source_kind), make_ledger(target_kind)
    fill(source)
    file = tmp_path / "backup.tar.gz"
    taken = backup(source, file)
    restored = restore(target, file)
    assert rows(target) == rows(source)
    assert contents(target) == contents(source)
    assert check(target).findings == ()
    assert taken.rows == restored.rows == {name: len(each) for name, each in all_rows(source).items() if each}
    assert files(target) == files(source)
    assert (taken.artifacts, restored.artifacts, taken.bytes) == (3, 3, file.stat().st_size)
    assert file.stat().st_mode & 0o077 == 0


def files(ledger: Ledger) -> list[str]:
    """Which artifacts are files: the large ones."""
    return [sha256 for sha256, _ in ledger.artifacts.stored()]


def all_rows(ledger: Ledger) -> dict[str, list[Any]]:
    with ledger.read() as tx:
        tables = [table for table in metadata.sorted_tables if table is not artifact_contents]
        return {table.name: list(tx.connection.execute(sa.select(table))) for table in tables}


def test_every_table_is_tried_here(ledger: Ledger) -> None:
    fill(ledger)
    assert [name for name, each in all_rows(ledger).items() if not each] == []


def test_numbers_go_on_above_the_highest_ever_given(make_ledger: MakeLedger, tmp_path: Path) -> None:
    for source_kind, target_kind in (("sqlite", "postgresql"), ("postgresql", "sqlite")):
        source, target = make_ledger(source_kind), make_ledger(target_kind)
        fill(source)
        with source.write() as tx:
            last = log.last_id(tx.connection)
            tx.connection.execute(sa.delete(events).where(events.c.id == last))
        backup(source, tmp_path / "b")
        restore(target, tmp_path / "b")
        with target.read() as tx:
            [event] = log.since(tx.connection, where=EventFilter(type="ledger.restored"))
        with target.write() as tx:
            assert create_run(tx, "demo", "next") == 2
        assert event.id == last + 1


@pytest.mark.soak
def test_numbers_of_the_world_that_is_replaced_are_not_given_again(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    backup(ledger, tmp_path / "b")
    with ledger.write() as tx:
        for _ in range(50):
            tx.event("later")
    with ledger.read() as tx:
        before = counters(tx.connection)
    restore(ledger, tmp_path / "b", force=True)
    with ledger.read() as tx:
        [event] = log.since(tx.connection, where=EventFilter(type="ledger.restored"))
    assert event.id == before["events"] + 1


def test_who_works_on_the_world_that_is_replaced_holds_no_job_of_the_new_one(
    ledger: Ledger, tmp_path: Path
) -> None:
    fill(ledger)
    backup(ledger, tmp_path / "b")
    with ledger.write() as tx:
        tx.connection.execute(sa.update(jobs).values(delivery=30))
    restore(ledger, tmp_path / "b", force=True)
    with ledger.read() as tx:
        deliveries = dict(tx.connection.execute(sa.select(jobs.c.status, jobs.c.delivery)).all())
    assert deliveries == {"queued": 34, "started": 34, "finished": 4}


def test_a_ledger_that_holds_something_is_replaced_only_by_force(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    backup(ledger, tmp_path / "b")
    before = rows(ledger)
    with ledger.write() as tx:
        create_run(tx, "demo", "later")
    later = rows(ledger)
    with pytest.raises(Conflict, match="the ledger is not empty: it has") as raised:
        restore(ledger, tmp_path / "b")
    assert "--force" in str(raised.value.hint)
    assert rows(ledger) == later
    restore(ledger, tmp_path / "b", force=True)
    for row in (job for job in before["jobs"] if job["ended_at"] is None):
        row["delivery"] += 4
    assert rows(ledger) == before


def test_a_ledger_that_others_work_on_is_never_replaced(ledger: Ledger, tmp_path: Path) -> None:
    backup(ledger, tmp_path / "b")
    with ledger.write() as tx:
        living = {**PROCESS, "beat_at": tx.now}
        tx.connection.execute(sa.insert(processes).values(id="host-7-abc", **living))
    for force in (True, False):
        with pytest.raises(Conflict, match="processes are working on this ledger: host-7-abc") as raised:
            restore(ledger, tmp_path / "b", force=force)
    assert "stop them first" in str(raised.value.hint)
    with ledger.write() as tx:
        tx.connection.execute(sa.update(processes).values(beat_at=tx.now - 61_000))
    restore(ledger, tmp_path / "b", force=True)


@pytest.mark.soak
def test_a_snapshot_taken_while_others_write_is_of_one_moment(
    ledger: Ledger, tmp_path: Path, make_ledger
) -> None:
    with acting(append_steadily, *place_of(ledger)) as (process, pipe):
        pipe.recv()
        for number in range(3):
            backup(ledger, tmp_path / f"b{number}")
        assert process.is_alive()
    for number in range(3):
        target = make_ledger("sqlite")
        report = restore(target, tmp_path / f"b{number}")
        # One event and one artifact in each transaction: as many of one as of the other, and none in between missing.
        with target.read() as tx:
            told = [
                event.data
                for event in log.since(tx.connection, where=EventFilter(type="steady"), limit=100_000)
            ]
        assert [data["number"] for data in told] == list(range(1, len(told) + 1))
        assert report.rows.get("artifacts", 0) == len(told)
        assert {data["artifact"] for data in told} == set(contents(target))
        assert report.left_out == ()
        assert check(target).ok


def test_artifacts_that_the_ledger_has_lost_are_left_out_and_told(
    make_ledger: MakeLedger, tmp_path: Path
) -> None:
    source, target = make_ledger("sqlite"), make_ledger("sqlite")
    with source.write() as tx:
        lost, damaged, small, kept = (
            source.artifacts.put(tx, content, name="it")
            for content in (b"l" * 100_000, b"d" * 100_000, b"small", b"kept")
        )
        changed = sa.update(artifact_contents).where(artifact_contents.c.artifact_id == small.id)
        tx.connection.execute(changed.values(content=b"smell"))
    source.artifacts.path(lost.sha256).unlink()
    source.artifacts.path(damaged.sha256).write_bytes(b"e" * 100_000)
    gone = sorted(each.sha256 for each in (lost, damaged, small))
    report = backup(source, tmp_path / "b")
    assert (sorted(report.left_out), report.artifacts) == (gone, 1)
    assert sorted(restore(target, tmp_path / "b").left_out) == gone
    assert contents(target) == {kept.sha256: b"kept"}
    assert len(check(target).findings) == 3


def test_restoring_mends_a_damaged_artifact(make_ledger: MakeLedger, tmp_path: Path) -> None:
    ledger = make_ledger("sqlite")
    truth = b"the truth" * 10_000
    with ledger.write() as tx:
        small, large = (ledger.artifacts.put(tx, content, name="t") for content in (b"the truth", truth))
    backup(ledger, tmp_path / "b")
    ledger.artifacts.path(large.sha256).write_bytes(b"the trush" * 10_000)
    with ledger.write() as tx:
        tx.connection.execute(sa.update(artifact_contents).values(content=b"the trush"))
    restore(ledger, tmp_path / "b", force=True)
    assert [ledger.artifacts.read(each.sha256) for each in (small, large)] == [b"the truth", truth]


def test_a_backup_takes_the_place_of_an_older_one_and_of_nothing_else(ledger: Ledger, tmp_path: Path) -> None:
    backup(ledger, tmp_path / "b")
    first = (tmp_path / "b").read_bytes()
    fill(ledger)
    backup(ledger, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() != first
    (tmp_path / "notes.txt").write_text("not a backup")
    with pytest.raises(Conflict, match="exists and is not a backup"):
        backup(ledger, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "not a backup"
    if ledger.path is not None:
        with pytest.raises(Conflict, match="exists and is not a backup"):
            backup(ledger, ledger.path)


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [("", Misuse, "is a directory"), ("no/such/place", LedgerUnavailable, "No such file or directory")],
)
def test_a_place_that_cannot_take_a_backup_is_told(make_ledger, tmp_path: Path, name, error, says) -> None:
    with pytest.raises(error, match=says):
        backup(make_ledger("sqlite"), tmp_path / name)


def test_a_backup_that_is_not_there_is_told(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="No such file"):
        restore(ledger, tmp_path / "none")


def test_two_backups_to_one_place_do_not_mix(make_ledger: MakeLedger, tmp_path: Path) -> None:
    ledger = make_ledger("sqlite")
    fill(ledger)
    results: list[object] = []

    def take() -> None:
        try:
            results.append(backup(ledger, tmp_path / "b"))
        except Conflict as error:
            results.append(str(error))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [each for each in results if isinstance(each, str)]
    assert len(refused) < 4
    assert all("another backup" in each for each in refused)
    restore(make_ledger("sqlite"), tmp_path / "b")
    assert [file.name for file in tmp_path.glob("b*")] == ["b"]


# Of the work of one process: from just begun to all but done.
MOMENTS = (0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)


def fill_a_lot(ledger: Ledger) -> None:
    with ledger.write() as tx:
        for number in range(3000):
            tx.event("counted", data={"number": number, "text": "x" * 200})
        for _ in range(30):
            ledger.artifacts.put(tx, os.urandom(200_000), name="noise")


@pytest.mark.soak
def test_a_backup_killed_at_any_moment_leaves_the_older_one_and_can_be_taken_again(
    ledger: Ledger, tmp_path: Path, make_ledger: MakeLedger
) -> None:
    target = tmp_path / "out" / "b"
    target.parent.mkdir()
    backup(ledger, target)
    older = target.read_bytes()
    fill_a_lot(ledger)
    killed = 0
    for cpu_seconds in MOMENTS:
        with acting(take_backup, *place_of(ledger), target, cpu_seconds) as (_, pipe):
            killed += not heard(pipe, "done")
        if target.read_bytes() != older:
            gzip.decompress(target.read_bytes())
    assert killed
    backup(ledger, target)
    assert [file.name for file in target.parent.iterdir()] == ["b"]
    fresh = make_ledger("sqlite")
    restore(fresh, target)
    assert rows(fresh) == rows(ledger)


@pytest.mark.soak
def test_a_restore_killed_at_any_moment_changes_all_or_nothing_and_can_be_repeated(
    ledger: Ledger, tmp_path: Path, make_ledger: MakeLedger
) -> None:
    source = make_ledger("sqlite")
    fill_a_lot(source)
    backup(source, tmp_path / "b")
    with ledger.write() as tx:
        create_run(tx, "demo", "of the old world")
    old, new = rows(ledger), rows(source)
    killed = 0
    for cpu_seconds in MOMENTS:
        with acting(put_back, *place_of(ledger), tmp_path / "b", cpu_seconds) as (_, pipe):
            killed += not heard(pipe, "done")
        assert rows(ledger) in (old, new)
        assert {row["sha256"] for row in rows(ledger)["artifacts"]} <= set(contents(ledger))
    assert killed
    restore(ledger, tmp_path / "b", force=True)
    assert rows(ledger) == new
    assert check(ledger).findings == ()


def test_a_backup_that_does_not_fit_is_refused_before_anything_changes(
    make_ledger: MakeLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = make_ledger("sqlite"), make_ledger("sqlite")
    fill(source)
    backup(source, tmp_path / "b")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    with pytest.raises(LedgerUnavailable, match=r"artifacts and files need \d+ bytes, but .* has 1000 left"):
        restore(target, tmp_path / "b")
    assert contents(target) == {}
    assert rows(target)["runs"] == []


def _without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


def test_a_backup_of_the_schema_before_is_upgraded_and_restored(
    ledger: Ledger, make_ledger, tmp_path
) -> None:
    source = make_ledger("sqlite")
    fill(source)
    taken = backup(source, tmp_path / "new")
    archive = Archive(tmp_path / "new")
    archive.go_back()
    archive.put_json("manifest.json", {**archive.json("manifest.json"), "ratchet_version": "0.1.0"})
    restored = restore(ledger, archive.write(tmp_path / "old"))
    assert rows(ledger) == {**rows(source), **{table: [] for table in LATER}}
    assert contents(ledger) == contents(source)
    assert (restored.ratchet_version, restored.taken_at) == ("0.1.0", taken.taken_at)
    assert check(ledger).findings == ()


def test_a_much_older_backup_goes_through_every_migration(ledger: Ledger, tmp_path: Path) -> None:
    """As schema 0005 was: events did not name their project yet."""
    run = {"id": 4, "kind": "a", "name": "b", "project_id": 7, "status": "pending", "reason": None}
    run |= {"spec": {"x": 1}, "result": None, "simulated": False, "used_recording": False}
    run |= {"created_at": 1, "updated_at": 1, "ended_at": None}
    event = {"id": 9, "at": 1, "type": "x", "actor": "y", "request_id": None, "project_id": None, "run_id": 4}
    event |= {"step_id": None, "attempt_id": None, "job_id": None, "message": "é💥", "data": [HOSTILE]}
    old = write_older(
        tmp_path / "old",
        "0005",
        {
            "events": [event],
            "projects": [{"id": 7, "name": "old", "created_at": 1}],
            "runs": [run],
        },
    )
    restore(ledger, old)
    found = rows(ledger)
    assert (found["runs"], found["projects"][0]["name"]) == ([run], "old")
    assert found["events"] == [{**event, "project_id": 7}]
    assert check(ledger).findings == ()


def test_an_older_backup_that_contradicts_itself_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    step = {"id": 1, "run_id": 5, "position": 0, "name": "a", "status": "pending", "reason": None}
    step |= {"spec": {}, "result": None, "created_at": 1, "updated_at": 1, "ended_at": None}
    before = all_rows(ledger)
    with pytest.raises(LedgerCorrupt, match="contradicts itself in steps"):
        restore(ledger, write_older(tmp_path / "old", "0005", {"steps": [step]}))
    for unknown in ({"steps": [{"id": 1}]}, {"ships": [{"id": 1}]}):
        with pytest.raises(LedgerCorrupt, match=r"does not have its columns|no table of schema 0005"):
            restore(ledger, write_older(tmp_path / "old", "0005", unknown))
    assert all_rows(ledger) == before


def write_older(path: Path, revision: str, tables: dict[str, list[dict[str, Any]]]) -> Path:
    with path.open("wb") as file, TarWriter.opened(file) as out:
        archive = Writer(out)
        given = {name: max(row["id"] for row in found) for name, found in tables.items()}
        archive.add_manifest(
            Manifest(format=1, schema_revision=revision, ratchet_version="0.0.5", taken_at=1, counters=given)
        )
        for name, found in tables.items():
            archive.add_rows(sa.Table(name, sa.MetaData()), found)
        archive.add_contents()
    return path
