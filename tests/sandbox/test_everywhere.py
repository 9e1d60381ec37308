"""What has got through before is tried again as other users, and under kernels that grant less.

The tests themselves run in each pass of the tests, as whoever runs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from itertools import chain
from pathlib import Path

import pytest

from ratchet.sandbox import IsolationRefused
from tests.sandbox.places import (
    as_here,
    ordinary_user,
    ordinary_user_without_namespaces,
    root_without_rights,
    without_namespaces,
    without_user_namespaces,
)

REFUSED = "commands are refused here"
ROOT = Path(__file__).parents[2]
# And where the kernel refuses the layers that a command must have.
PLACES = {
    ordinary_user: False,
    without_user_namespaces: os.geteuid() != 0,
    ordinary_user_without_namespaces: True,
    without_namespaces: True,
    root_without_rights: os.geteuid() == 0,
}
SANDBOX, ENGINES, LEDGER, RUNTIME = "tests/sandbox", "tests/engines", "tests/ledger", "tests/runtime"
CLOSED_BEFORE = {
    "another user has the rights of root, or reads a home": [
        f"{SANDBOX}/test_files.py::test_no_file_that_lends_its_owner_s_rights_can_be_made",
        f"{SANDBOX}/test_files.py::test_no_file_that_lends_its_owner_s_rights_is_left_behind",
        "tests/cli/test_init.py::test_other_users_can_read_nothing_of_a_new_home",
        "tests/cli/test_init.py::test_a_home_that_other_users_could_read_is_closed_when_it_is_opened",
    ],
    "the holder of a token has the server read any path": [
        "tests/server/test_named_places.py",
        f"{ENGINES}/test_replay.py::test_what_is_no_file_of_bounded_length_is_no_cassette_and_is_not_read",
    ],
    "strangers or a lack of room end durable work": [
        "tests/server/test_connections.py",
        f"{RUNTIME}/test_jobs.py::test_a_job_that_finds_no_room_on_its_machine_is_put_off_and_never_fails",
        f"{RUNTIME}/test_jobs.py::test_a_job_that_finds_the_database_away_is_put_off_and_never_fails",
    ],
    "a node changes files and devices that are not its own": [
        f"{SANDBOX}/test_places.py::test_a_node_changes_nothing_of_a_file_that_is_not_its_own",
        f"{SANDBOX}/test_places.py::test_a_node_with_scratch_changes_only_what_lies_in_it",
        f"{SANDBOX}/test_places.py::test_a_command_changes_nothing_of_a_file_that_is_not_its_own",
        f"{SANDBOX}/test_places.py::test_no_lease_can_be_had_on_a_file_of_one_s_own_either",
        f"{SANDBOX}/test_nodes.py::test_a_node_gets_json_and_returns_json",
    ],
    "deaths of workers end a run that makes progress": [
        f"{RUNTIME}/test_runs.py::test_a_run_that_makes_progress_outlives_any_number_of_its_workers",
        f"{RUNTIME}/test_runs.py::test_a_run_whose_workers_die_without_progress_is_blocked_with_its_steps"
        "_and_can_be_resumed",
        f"{RUNTIME}/test_runs.py::test_a_step_left_running_without_a_job_is_found",
    ],
    "a sandbox uses up what its user has of descriptors and watches": [
        f"{SANDBOX}/test_places.py::test_descriptors_on_their_way_keep_no_other_sandbox_from_starting",
        f"{SANDBOX}/test_places.py::test_a_command_leaves_most_of_what_its_user_may_watch_files_with",
    ],
    "bounds do not hold": [
        f"{SANDBOX}/test_bounds.py",
    ],
    "what is restored is not whole": [
        f"{LEDGER}/test_home.py",
        f"{LEDGER}/test_backup.py::test_a_much_older_backup_goes_through_every_migration",
        f"{LEDGER}/test_schema.py::test_a_schema_is_not_upgraded_under_a_living_process_of_this_machine",
    ],
    "clocks, databases, passwords and other servers": [
        f"{RUNTIME}/test_schedules.py::test_a_worker_whose_clock_is_hours_ahead_fires_and_starts_nothing_early",
        f"{LEDGER}/test_schema.py::test_a_postgresql_without_an_encoding_is_refused_by_name",
        f"{LEDGER}/test_schema.py::test_passwords_in_the_query_of_an_address_are_not_told",
        "tests/server/test_health.py::test_a_server_whose_ledger_takes_no_writes_is_not_ready",
        "tests/cli/test_serve.py::test_two_homes_serve_side_by_side_and_each_finds_its_own",
    ],
    "runs reach each other, their own report, and the files of the user": [
        f"{SANDBOX}/test_nodes.py::test_a_node_leaves_no_mark_on_the_open_files_of_the_next_one",
        f"{SANDBOX}/test_places.py::test_a_command_cannot_pretend_to_have_been_cancelled",
        f"{SANDBOX}/test_toolchain.py",
    ],
}


@pytest.mark.parametrize("named", [*chain.from_iterable(CLOSED_BEFORE.values())])
def test_a_test_that_is_named_here_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As a plugin of the tests in a place: those that go to another by themselves are left out, and PostgreSQL where a
    root without rights cannot start it: it runs as no root."""
    from tests.tiers import is_on_postgresql  # a plugin itself, which pytest imports first

    held = next(line for line in Path("/proc/self/status").read_text().splitlines() if "CapEff" in line)
    has_postgresql = os.geteuid() != 0 or int(held.split()[1], 16) != 0
    items[:] = [
        item
        for item in items
        if _place_of(item) in (None, as_here)
        and (has_postgresql or not (is_on_postgresql(item) or "postgres_server" in item.fixturenames))  # type: ignore[attr-defined]
    ]


def _place_of(item: pytest.Item) -> object:
    call = getattr(item, "callspec", None)
    place = None if call is None else call.params.get("place")
    return place if callable(place) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Foreign code that is refused in a place has done nothing."""
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(IsolationRefused):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, REFUSED)
    return report


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("finding", CLOSED_BEFORE)
def test_what_was_closed_stays_closed_everywhere(place: Callable[[], None], finding: str) -> None:
    command = [sys.executable, "-m", "tests.sandbox.places", place.__name__, sys.executable, "-m", "pytest"]
    plugins = ["-p", "no:cacheprovider", "-p", "tests.sandbox.test_everywhere"]
    done = subprocess.run(
        [*command, "-q", *plugins, *CLOSED_BEFORE[finding]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert PLACES[place] or REFUSED not in done.stdout
