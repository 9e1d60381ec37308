"""Audits on both databases, with real repositories."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel import Misuse, NotFound, RunStatus
from ratchet.ledger import EventFilter, Ledger, change_run
from ratchet.ledger.events import latest
from ratchet.ledger.projects import add_project
from ratchet.ledger.protocols import Protocol, add_protocol, change_protocol, get_protocol
from ratchet.ledger.runs import create_run
from ratchet.protocols.jobs import AUDIT
from ratchet.protocols.spec import read_protocol_spec, record_spec, spec_hash
from ratchet.protocols.spec.audit import NAME, audit_protocol, every, keep_schedule, start_audit
from ratchet.runtime import Runtime, Worker, get_schedule, list_schedules, open_runtime, read_when
from ratchet.runtime.schedules import set_schedule_paused
from ratchet.workspaces import Repository
from tests.protocols.spec.specs import protocol, step
from tests.runtime.conftest import ended
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load

BRANCH = "0001-x"
ROOT = f".protocols/{BRANCH}"
MakeProtocol = Callable[..., int]


@pytest.fixture
def make_protocol(ledger: Ledger, tmp_path: Path) -> MakeProtocol:
    """Makes a protocol of a project whose repository has these files on the protocol's branch."""

    def make(files: dict[str, bytes] | None = None, name: str = BRANCH, spec: Any = None) -> int:
        place = tmp_path / f"{name}.git"
        with Repository.create(place) as repository:
            if files is not None:
                commit = repository.commit_files(files, parent=None, message="plan")
                repository.advance(f"refs/heads/{name}", commit, expected=None)
        with ledger.write() as tx:
            project_id = add_project(tx, f"project-{name}", local_path=str(place))
            run_id = create_run(tx, "protocol", name, project_id=project_id)
            add_protocol(tx, run_id, project_id, name, base_branch="main", template_config={"kept": 1})
            if spec is not None:
                record_spec(tx, run_id, spec)
        return run_id

    return make


def protocol_of(ledger: Ledger, run_id: int) -> Protocol:
    with ledger.read() as tx:
        return get_protocol(tx, run_id)


def events_of(ledger: Ledger, run_id: int, type: str) -> list[Any]:
    with ledger.read() as tx:
        return [event.data for event in latest(tx.connection, where=EventFilter(run_id=run_id, type=type))]


def audit_now(runtime: Runtime, run_id: int, *, backfill: bool = False) -> dict[str, Any]:
    return audit_protocol(partial(runtime.ledger.write, actor="test"), runtime, run_id, backfill=backfill)


def test_a_valid_spec_is_kept_with_its_hash(ledger: Ledger, make_protocol: MakeProtocol) -> None:
    spec = read_protocol_spec(protocol(step("00-setup"), step("01-build")))

    run_id = make_protocol(spec=spec)

    found = protocol_of(ledger, run_id)
    assert (found.spec_status, found.spec_errors, found.spec_hash) == ("valid", [], spec_hash(spec))
    assert found.spec_validated_at is not None
    assert found.template_config["kept"] == 1
    assert found.template_config["protocol_spec"] == found.spec
    assert found.template_config["spec_meta"]["status"] == "valid"
    assert events_of(ledger, run_id, "spec_validated") == [{"spec_hash": found.spec_hash, "errors": []}]


def test_an_invalid_spec_is_kept_with_everything_that_is_wrong(
    ledger: Ledger, make_protocol: MakeProtocol
) -> None:
    run_id = make_protocol(
        spec=protocol(step("a", depends_on=["x"]), step("b", outputs={"protocol": "plan.md"}))
    )

    found = protocol_of(ledger, run_id)
    assert found.spec_status == "invalid"
    assert len(found.spec_errors) == 2
    [event] = events_of(ledger, run_id, "spec_validation_error")
    assert event["errors"] == found.spec_errors


def test_a_spec_whose_prompt_is_missing_is_invalid_where_the_files_are_known(
    ledger: Ledger, make_protocol: MakeProtocol
) -> None:
    run_id = make_protocol()

    with ledger.write() as tx:
        problems = record_spec(tx, run_id, protocol(step("a")), exists=lambda _: False)

    assert problems == ["step a: prompt_ref 'a.md' does not exist"]
    assert protocol_of(ledger, run_id).spec_status == "invalid"


def test_a_missing_spec_is_made_of_the_step_files_of_the_branch(
    runtime: Runtime, ledger: Ledger, make_protocol: MakeProtocol, tmp_path: Path
) -> None:
    files = {f"{ROOT}/{name}": b"do" for name in ("00-setup.md", "01-build.md", "plan.md")}
    run_id = make_protocol(files)

    record = audit_now(runtime, run_id, backfill=True)

    found = protocol_of(ledger, run_id)
    assert record == {
        "protocol_run_id": run_id,
        "protocol_name": BRANCH,
        "project_id": found.project_id,
        "project_name": f"project-{BRANCH}",
        "status": "valid",
        "spec_hash": found.spec_hash,
        "errors": [],
        "backfilled": True,
        "workspace": str(tmp_path / f"{BRANCH}.git"),
        "protocol_root": ROOT,
        "paths_checked": True,
    }
    assert [each["id"] for each in found.spec["steps"]] == ["00-setup", "01-build"]
    assert found.spec_hash is not None
    assert events_of(ledger, run_id, "spec_audit") == [record]


def test_a_missing_spec_is_made_of_the_codemachine_workspace_of_the_branch(
    runtime: Runtime, ledger: Ledger, make_protocol: MakeProtocol
) -> None:
    agents = b"export default [{ id: 'build', promptPath: 'prompts/build.md', engineId: 'codex' }];"
    files = {
        ".codemachine/config/main.agents.js": agents,
        ".codemachine/prompts/build.md": b"Build it.",
        f"{ROOT}/prompts/00-build.md": b"Build it.",
    }
    run_id = make_protocol(files)

    record = audit_now(runtime, run_id, backfill=True)

    assert (record["status"], record["errors"], record["backfilled"]) == ("valid", [], True)
    [made] = protocol_of(ledger, run_id).spec["steps"]
    assert (made["name"], made["engine_id"]) == ("00-build", "codex")


def test_a_codemachine_workspace_that_cannot_be_read_leaves_the_spec_missing(
    runtime: Runtime, make_protocol: MakeProtocol
) -> None:
    run_id = make_protocol({".codemachine/config/main.agents.js": b"export default [{"})

    record = audit_now(runtime, run_id, backfill=True)

    assert record["status"] == "missing"
    assert "main.agents.js" in record["errors"][1]


def test_a_missing_spec_stays_missing_unless_it_is_to_be_made(
    runtime: Runtime, ledger: Ledger, make_protocol: MakeProtocol
) -> None:
    run_id = make_protocol({f"{ROOT}/00-setup.md": b"do"})

    record = audit_now(runtime, run_id)

    assert (record["status"], record["backfilled"], record["spec_hash"]) == ("missing", False, None)
    assert record["errors"] == ["the protocol has no spec"]
    assert protocol_of(ledger, run_id).spec_status == "missing"
    assert len(events_of(ledger, run_id, "spec_audit")) == 1


@pytest.mark.parametrize(
    ("files", "told"), [(None, f"there is no branch {BRANCH}"), ({"a.txt": b"x"}, "there are no step files")]
)
def test_where_nothing_tells_what_a_spec_was_the_audit_says_so(
    runtime: Runtime, make_protocol: MakeProtocol, files: dict[str, bytes] | None, told: str
) -> None:
    record = audit_now(runtime, make_protocol(files), backfill=True)

    assert record["status"] == "missing"
    assert told in record["errors"][1]


def test_a_prompt_that_vanished_from_the_branch_makes_the_spec_invalid(
    runtime: Runtime, ledger: Ledger, make_protocol: MakeProtocol
) -> None:
    run_id = make_protocol({f"{ROOT}/a.md": b"do"}, spec=protocol(step("a"), step("b")))
    before = protocol_of(ledger, run_id)
    assert before.spec_status == "valid"

    record = audit_now(runtime, run_id, backfill=True)

    assert (record["status"], record["errors"]) == ("invalid", ["step b: prompt_ref 'b.md' does not exist"])
    assert protocol_of(ledger, run_id).spec == before.spec


def test_a_branch_that_is_not_here_says_nothing_against_a_spec(
    runtime: Runtime, make_protocol: MakeProtocol
) -> None:
    record = audit_now(runtime, make_protocol(None, spec=protocol(step("a"))))

    assert (record["status"], record["paths_checked"]) == ("valid", False)


def test_nothing_is_made_for_a_protocol_that_is_being_planned(
    runtime: Runtime, ledger: Ledger, make_protocol: MakeProtocol
) -> None:
    run_id = make_protocol({f"{ROOT}/00-setup.md": b"do"})
    with ledger.write() as tx:
        change_run(tx, run_id, RunStatus.PLANNING)

    assert audit_now(runtime, run_id, backfill=True)["backfilled"] is False


@pytest.mark.soak
def test_an_audit_of_everything_goes_through_all_protocols_once(
    runtime: Runtime, ledger: Ledger, worker: Worker, make_protocol: MakeProtocol
) -> None:
    good = make_protocol(name="0001-good", spec=protocol(step("a")))
    bad = make_protocol(name="0002-bad", spec=protocol(step("a", depends_on=["x"])))
    files = {".protocols/0003-none/00-a.md": b"do"}
    none = make_protocol(files, name="0003-none")
    with ledger.write() as tx:
        job_id = start_audit(tx, runtime, backfill=True)

    job = ended(ledger, job_id)

    assert job.result == {"valid": 2, "invalid": 1, "backfilled": 1}
    assert [len(events_of(ledger, run_id, "spec_audit")) for run_id in (good, bad, none)] == [1, 1, 1]
    assert protocol_of(ledger, none).spec_status == "valid"


@pytest.mark.soak
def test_an_audit_by_the_clock_leaves_out_what_has_ended_and_what_it_has_done_before(
    runtime: Runtime, ledger: Ledger, worker: Worker, make_protocol: MakeProtocol
) -> None:
    names = ("0001-ended", "0002-done", "0003-open")
    gone, done, still = (make_protocol(name=name, spec=protocol(step("a"))) for name in names)
    with ledger.write() as tx:
        change_run(tx, gone, RunStatus.CANCELLED)
        job_id = runtime.enqueue(tx, AUDIT, {"unfinished": True})
        # As if the job had come so far before its process died.
        change_protocol(tx, done, spec_validated_at=tx.now + 60_000)

    assert ended(ledger, job_id).result == {"valid": 1}

    assert [len(events_of(ledger, run_id, "spec_audit")) for run_id in (gone, done, still)] == [0, 0, 1]


@pytest.mark.soak
def test_an_audit_can_be_of_one_protocol_or_of_one_project(
    runtime: Runtime, ledger: Ledger, worker: Worker, make_protocol: MakeProtocol
) -> None:
    first = make_protocol(name="0001-a", spec=protocol(step("a")))
    second = make_protocol(name="0002-b", spec=protocol(step("a")))
    with ledger.write() as tx:
        of_one = start_audit(tx, runtime, protocol_id=first)
        of_project = start_audit(tx, runtime, project_id=get_protocol(tx, second).project_id)

    assert ended(ledger, of_one).result["protocol_run_id"] == first
    assert ended(ledger, of_project).result == {"valid": 1}
    assert [len(events_of(ledger, run_id, "spec_audit")) for run_id in (first, second)] == [1, 1]


def test_an_audit_of_what_does_not_exist_is_refused(
    runtime: Runtime, ledger: Ledger, make_protocol: MakeProtocol
) -> None:
    first, second = make_protocol(name="0001-a"), make_protocol(name="0002-b")
    with ledger.write() as tx:
        with pytest.raises(NotFound, match="project"):
            start_audit(tx, runtime, project_id=999)
        with pytest.raises(NotFound, match="protocol"):
            start_audit(tx, runtime, protocol_id=999)
        with pytest.raises(NotFound, match="in project"):
            start_audit(tx, runtime, protocol_id=first, project_id=get_protocol(tx, second).project_id)
        with pytest.raises(Misuse, match="-5"):
            start_audit(tx, runtime, interval_seconds=-5)


def test_an_audit_with_an_interval_comes_again(
    runtime: Runtime, ledger: Ledger, make_protocol: MakeProtocol
) -> None:
    run_id = make_protocol()

    with ledger.write() as tx:
        start_audit(tx, runtime, protocol_id=run_id, interval_seconds=400)

    with ledger.read() as tx:
        schedule = get_schedule(tx, f"spec-audit-protocol-{run_id}")
    assert (schedule.cron, schedule.kind) == ("*/10 * * * *", "spec_audit")
    assert schedule.payload["protocol_id"] == run_id


@pytest.mark.parametrize(
    ("seconds", "cron"),
    [
        (0.5, "*/30 * * * * *"),
        (30, "*/30 * * * * *"),
        (60, "*/1 * * * *"),
        (420, "*/10 * * * *"),
        (3600, "0 */1 * * *"),
        (5 * 3600, "0 */6 * * *"),
        (13 * 3600, "0 0 * * *"),
        (10**9, "0 0 * * *"),
    ],
)
def test_an_interval_becomes_even_times(seconds: float, cron: str) -> None:
    assert every(seconds) == cron
    assert read_when(cron).cron


@pytest.mark.soak
def test_a_worker_that_starts_keeps_the_schedule_of_the_settings(
    ledger: Ledger, url: str, tmp_path: Path
) -> None:
    def cron_after_start(**settings: Any) -> str | None:
        runtime = open_runtime(load(tmp_path, url, **settings), ledger, make_kinds())
        worker = Worker(runtime)
        worker.start()
        worker.stop(drain_seconds=0)
        with ledger.read() as tx:
            return next((each.cron for each in list_schedules(tx) if each.name == NAME), None)

    assert cron_after_start() is None
    assert cron_after_start(**{"protocols.audit_minutes": 60}) == "0 */1 * * *"
    assert cron_after_start(**{"protocols.audit_minutes": 15}) == "*/15 * * * *"
    assert cron_after_start() is None


def test_a_schedule_that_a_person_paused_stays_so(ledger: Ledger, url: str, tmp_path: Path) -> None:
    runtime = open_runtime(load(tmp_path, url, **{"protocols.audit_minutes": 60}), ledger, make_kinds())
    keep_schedule(runtime)
    with ledger.write() as tx:
        set_schedule_paused(tx, NAME, True)

    keep_schedule(runtime)

    with ledger.read() as tx:
        assert get_schedule(tx, NAME).paused
