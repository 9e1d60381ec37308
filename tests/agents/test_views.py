"""What is shown of agents, on both databases: rows as an Architect leaves them, real commits, real log files."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest

from ratchet.agents import logs, views
from ratchet.agents.addresses import announce, host_lock
from ratchet.agents.contract import Role, place_of
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import Conflict, NotFound, RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.agents import add_version, create_agent, get_agent, move_current, quarantine_version
from ratchet.ledger.runs import create_run
from ratchet.ledger.statuses import change_run
from tests.agents.made_up import make_agent, make_version, tool

SETTINGS = Agents()
NAME = "greeter"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def shown_versions(ledger: Ledger, **page: int) -> list[views.ListedVersion]:
    with ledger.read() as tx:
        return views.versions(tx, NAME, **page)


def shown_agent(ledger: Ledger, home: Path) -> views.WholeAgent:
    with ledger.read() as tx:
        return views.one_agent(tx, home, SETTINGS, NAME)


def log_of(ledger: Ledger, home: Path, role: Role = Role.RUNNER, *, printed: bool = False) -> logs.AgentLog:
    with ledger.read() as tx:
        return logs.find_log(tx, home, NAME, role, printed=printed)


def test_agents_are_listed_by_name_a_page_at_a_time(ledger: Ledger, home: Path) -> None:
    for name in ("gamma", "alpha", "beta"):
        make_agent(ledger, home, name)
    with ledger.write() as tx:
        create_agent(tx, "unmade", "Still to be made.")
    with ledger.read() as tx:
        first = views.agents(tx, limit=2)
        rest = views.agents(tx, after="beta", limit=2)
    assert [(each.name, each.version, each.status) for each in first] == [
        ("alpha", "0.0.0", "ready"),
        ("beta", "0.0.0", "ready"),
    ]
    assert [(each.name, each.version, each.commit) for each in rest][1] == ("unmade", None, None)


def test_the_current_version_of_one_agent_is_not_taken_for_anothers(ledger: Ledger, home: Path) -> None:
    """Two agents that begin alike share a commit hash, but not its row."""
    make_agent(ledger, home, "alpha")
    other = make_agent(ledger, home, "beta")
    make_version(ledger, home, "beta", "1.0.0", parent=other.current)
    with ledger.read() as tx:
        assert [each.version for each in views.agents(tx)] == ["0.0.0", "1.0.0"]


def test_an_agent_is_shown_with_its_version_its_address_and_its_last_runs(ledger: Ledger, home: Path) -> None:
    agent = make_agent(ledger, home)
    with ledger.write() as tx:
        spec = {"action": "feedback", "message": "too formal", "severity": "high", "source": "person"}
        run_id = create_run(tx, "agent", NAME, spec=spec)
        create_run(tx, "research", NAME, spec={"task": "hill"})
        change_run(tx, run_id, RunStatus.RUNNING)
        change_run(tx, run_id, RunStatus.COMPLETED, result={"decision": "state"})
    shown = shown_agent(ledger, home)
    assert (shown.version, shown.commit, shown.pinned) == ("0.0.0", agent.current, False)
    assert shown.current.tools == ["greet"]
    assert asdict(shown.address) == {
        "runner": "http://127.0.0.1:8125/agents/greeter/runner/mcp",
        "tuner": "http://127.0.0.1:8125/agents/greeter/tuner/mcp",
        "is_up": False,
    }
    runs = shown.runs
    assert [(run.action, run.severity, run.result) for run in runs] == [
        ("feedback", "high", {"decision": "state"}),
        ("create", None, None),
    ]


def test_the_address_is_that_of_the_host_that_runs(ledger: Ledger, home: Path) -> None:
    make_agent(ledger, home)
    with host_lock(home):
        announce(home, "http://127.0.0.1:4321")
        address = shown_agent(ledger, home).address
    assert asdict(address) == {
        "runner": "http://127.0.0.1:4321/agents/greeter/runner/mcp",
        "tuner": "http://127.0.0.1:4321/agents/greeter/tuner/mcp",
        "is_up": True,
    }
    with ledger.read() as tx:
        any_port = views.one_agent(tx, home, Agents(port=0), NAME).address
    assert asdict(any_port) == {"runner": None, "tuner": None, "is_up": False}


def test_an_unknown_agent_is_not_found(ledger: Ledger, home: Path) -> None:
    with ledger.read() as tx, pytest.raises(NotFound, match="agent nobody"):
        views.one_agent(tx, home, SETTINGS, "nobody")
    with ledger.read() as tx, pytest.raises(NotFound, match="agent nobody"):
        views.versions(tx, "nobody")


def test_versions_tell_the_line_of_the_current_one_from_variants(ledger: Ledger, home: Path) -> None:
    first = make_agent(ledger, home).current
    second = make_version(ledger, home, NAME, "0.1.0", parent=first)
    third = make_version(ledger, home, NAME, "0.2.0", parent=second.commit)
    variant = make_version(ledger, home, NAME, "0.1.0", parent=first, runner="# other\n", promoted=False)
    shown = shown_versions(ledger)
    assert [(each.commit, each.version, each.is_current, each.on_line, each.tag) for each in shown] == [
        (variant.commit, "0.1.0", False, False, f"v0.1.0-{variant.commit[:12]}"),
        (third.commit, "0.2.0", True, True, "v0.2.0"),
        (second.commit, "0.1.0", False, True, "v0.1.0"),
        (first, "0.0.0", False, True, "v0.0.0"),
    ]
    assert views.graph(shown) == ["o", "| @", "| o", "o"]


def test_versions_that_were_rolled_back_are_not_on_the_line(ledger: Ledger, home: Path) -> None:
    agent = make_agent(ledger, home)
    second = make_version(ledger, home, NAME, "0.1.0", parent=agent.current)
    with ledger.write() as tx:
        move_current(tx, get_agent(tx, NAME), str(agent.current), expected=second.commit, why="rolled_back")
    assert [(each.is_current, each.on_line) for each in shown_versions(ledger)] == [
        (False, False),
        (True, True),
    ]


def test_versions_come_in_pages_that_fit_together(ledger: Ledger, home: Path) -> None:
    parent = make_agent(ledger, home).current
    for number in range(1, 5):
        parent = make_version(
            ledger, home, NAME, f"0.{number}.0", parent=parent, runner=f"# {number}\n"
        ).commit
    everything = shown_versions(ledger)
    first = shown_versions(ledger, limit=2)
    rest = shown_versions(ledger, before=first[-1].id, limit=10)
    assert [*first, *rest] == everything
    assert all(each.on_line for each in everything)
    assert views.graph(everything) == ["@", "o", "o", "o", "o"]


def test_one_version_is_shown_with_its_tools_and_why_it_is_quarantined(ledger: Ledger, home: Path) -> None:
    agent = make_agent(ledger, home)
    made = make_version(
        ledger, home, NAME, "0.1.0", parent=agent.current, tools=[tool("wave", hand="string")]
    )
    with ledger.write() as tx:
        quarantine_version(tx, agent, made.commit, "it crashed 4 times")
    with ledger.read() as tx:
        shown = views.one_version(tx, home, NAME, made.commit[:8])
    assert (shown.status, shown.reason) == ("quarantined", "it crashed 4 times")
    assert list(map(asdict, shown.tools)) == [tool("wave", hand="string")]
    assert shown.directory == str(place_of(home, NAME).version(made.commit))


def test_versions_of_an_agent_whose_repository_is_gone_are_still_listed(ledger: Ledger, home: Path) -> None:
    make_agent(ledger, home)
    place = place_of(home, NAME)
    place.repository.rename(place.root / "elsewhere")
    assert [(each.version, each.tag) for each in shown_versions(ledger)] == [("0.0.0", "v0.0.0")]


def test_the_current_version_is_compared_with_the_one_it_was_made_from(ledger: Ledger, home: Path) -> None:
    agent = make_agent(ledger, home, runner="print('hello')\n")
    make_version(
        ledger,
        home,
        NAME,
        "1.0.0",
        parent=agent.current,
        runner="print('hi')\n",
        tools=[tool(who="integer"), tool("wave")],
    )
    with ledger.read() as tx:
        found = views.comparison(home, views.find_compared(tx, NAME))
    assert (found.old.version, found.new.version) == ("0.0.0", "1.0.0")
    assert (found.tools.added, found.tools.changed) == (("wave",), ("greet",))
    assert found.tools.least == "major"
    assert sorted(found.files) == ["metadata.json", "runner.py"]
    assert "-print('hello')\n+print('hi')\n" in found.diff
    assert found.is_cut is False


def test_any_two_versions_are_compared_in_the_order_they_are_named(ledger: Ledger, home: Path) -> None:
    agent = make_agent(ledger, home, runner="# one\n")
    make_version(ledger, home, NAME, "0.1.0", parent=agent.current, runner="# two\n")
    make_version(ledger, home, NAME, "0.2.0", parent=agent.current, runner="# three\n", promoted=False)
    with ledger.read() as tx:
        since = views.comparison(home, views.find_compared(tx, NAME, "0.0.0"))
        across = views.comparison(home, views.find_compared(tx, NAME, "v0.2.0", "0.1.0"))
    assert "-# one\n+# two\n" in since.diff
    assert "-# three\n+# two\n" in across.diff


def test_a_first_version_has_nothing_to_be_compared_with(ledger: Ledger, home: Path) -> None:
    make_agent(ledger, home)
    with ledger.read() as tx, pytest.raises(Conflict, match="made from nothing"):
        views.find_compared(tx, NAME)


def test_a_very_long_difference_is_cut_and_says_so(ledger: Ledger, home: Path) -> None:
    agent = make_agent(ledger, home)
    make_version(ledger, home, NAME, "0.1.0", parent=agent.current, runner="x = 1\n" * 200_000)
    with ledger.read() as tx:
        found = views.comparison(home, views.find_compared(tx, NAME))
    assert (len(found.diff), found.is_cut) == (1_000_000, True)


def test_a_difference_of_bytes_that_are_no_text_can_be_sent(ledger: Ledger, home: Path) -> None:
    agent = make_agent(ledger, home)
    make_version(ledger, home, NAME, "0.1.0", parent=agent.current, runner=b"# caf\xe9\n")
    with ledger.read() as tx:
        found = views.comparison(home, views.find_compared(tx, NAME))
    assert "+# caf\ufffd\n" in found.diff


def test_a_long_message_is_shown_only_in_part(ledger: Ledger, home: Path) -> None:
    make_agent(ledger, home)
    with ledger.write() as tx:
        create_run(tx, "agent", NAME, spec={"action": "feedback", "message": "x" * 1_000_000})
    with ledger.read() as tx:
        [run, _] = views.agent_runs(tx, NAME)
    assert len(run.message) < 5_000


def test_runs_of_an_agent_come_in_pages(ledger: Ledger, home: Path) -> None:
    make_agent(ledger, home)
    with ledger.write() as tx:
        for number in range(3):
            create_run(tx, "agent", NAME, spec={"action": "feedback", "message": str(number)})
        create_run(tx, "agent", "another", spec={"action": "create"})
    with ledger.read() as tx:
        first = views.agent_runs(tx, NAME, limit=2)
        rest = views.agent_runs(tx, NAME, before=first[-1].run)
    assert [run.message for run in (*first, *rest)] == ["2", "1", "0", "Greet people."]


def test_the_outcome_of_a_change_names_the_version_it_began_from(ledger: Ledger, home: Path) -> None:
    agent = make_agent(ledger, home)
    made = make_version(ledger, home, NAME, "0.1.0", parent=agent.current)
    with ledger.write() as tx:
        run_id = create_run(tx, "agent", NAME, spec={"action": "feedback"})
        change_run(tx, run_id, RunStatus.RUNNING)
        result = {"decision": "code", "commit": made.commit, "version": "0.1.0", "promoted": True}
        change_run(tx, run_id, RunStatus.COMPLETED, result=result)
    with ledger.read() as tx:
        found = views.outcome(tx, home, SETTINGS, run_id)
    assert (found.from_version, found.result["version"], found.agent.version) == (
        "0.0.0",
        "0.1.0",
        "0.1.0",
    )


def test_the_outcome_of_a_change_says_which_recorded_calls_it_answers_otherwise(
    ledger: Ledger, home: Path
) -> None:
    agent = make_agent(ledger, home)
    differing = {
        "call": 'count({"by": 2})',
        "before": {"failed": False, "text": "2", "structured": None},
        "after": {"failed": True, "text": "no", "structured": None},
        "asked": True,
    }
    with ledger.write() as tx:
        replay = {"calls": 3, "differences": [differing], "unstable": []}
        made = add_version(
            tx,
            agent,
            "d" * 40,
            "0.1.0",
            parent=agent.current,
            summary="",
            tools=[],
            run_id=None,
            certificate={"replay": replay},
        )
        run_id = create_run(tx, "agent", NAME, spec={"action": "feedback"})
        change_run(tx, run_id, RunStatus.RUNNING)
        change_run(tx, run_id, RunStatus.COMPLETED, result={"decision": "code", "commit": made.commit})
    with ledger.read() as tx:
        found = views.outcome(tx, home, SETTINGS, run_id)
    assert found.answered_otherwise == ["""count({"by": 2}) answered '2', and now the error 'no'"""]


def test_the_outcome_of_a_run_on_an_agent_that_is_gone_has_no_agent(ledger: Ledger, home: Path) -> None:
    with ledger.write() as tx:
        run_id = create_run(tx, "agent", NAME, spec={"action": "create"})
    with ledger.read() as tx:
        assert views.outcome(tx, home, SETTINGS, run_id).agent is None


class TestLogs:
    """Nothing of it depends on the database."""

    @pytest.fixture(autouse=True)
    def _place(self, url: str, ledger: Ledger, home: Path) -> None:
        commit = make_agent(ledger, home).current
        self.logs = place_of(home, NAME).version(str(commit)) / "logs"

    pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)

    def test_the_last_lines_are_shown(self, ledger: Ledger, home: Path) -> None:
        (self.logs / "runner.log").write_text("one\ntwo\nthree\n")
        (self.logs / "tuner.log").write_text("heard\n")
        (self.logs / "runner.out").write_text("Traceback\n")
        log = log_of(ledger, home)
        assert (logs.tail(log, 2).lines, logs.tail(log, 2).is_cut) == (("two", "three"), True)
        assert (logs.tail(log, 9).lines, logs.tail(log, 9).is_cut) == (("one", "two", "three"), False)
        assert logs.tail(log, 0).lines == ()
        assert logs.tail(log_of(ledger, home, Role.TUNER), 9).lines == ("heard",)
        assert logs.tail(log_of(ledger, home, printed=True), 9).lines == ("Traceback",)

    def test_nothing_logged_is_no_mistake(self, ledger: Ledger, home: Path) -> None:
        assert logs.tail(log_of(ledger, home), 9) == logs.LogEnd(())

    def test_of_a_huge_log_only_a_bounded_end_is_read(self, ledger: Ledger, home: Path) -> None:
        with (self.logs / "runner.log").open("wb") as file:
            file.truncate(10**12)  # sparse: a terabyte that takes no room
            file.seek(0, os.SEEK_END)
            file.write(b"\nthe end\n")
        end = logs.tail(log_of(ledger, home), 5)
        assert (end.lines, end.is_cut) == (("the end",), True)

    def test_bytes_that_are_no_text_are_marked(self, ledger: Ledger, home: Path) -> None:
        (self.logs / "runner.log").write_bytes(b"caf\xe9\n\x00\xff\n")
        assert logs.tail(log_of(ledger, home), 9).lines == ("caf\ufffd", "\x00\ufffd")

    def test_a_link_is_not_followed(self, ledger: Ledger, home: Path, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("do not read\n")
        (self.logs / "runner.log").symlink_to(secret)
        assert logs.tail(log_of(ledger, home), 9).lines == ()

    def test_a_link_in_the_place_of_the_directory_is_not_followed(
        self, ledger: Ledger, home: Path, tmp_path: Path
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "runner.log").write_text("do not read\n")
        self.logs.rmdir()
        self.logs.symlink_to(elsewhere)
        assert logs.tail(log_of(ledger, home), 9).lines == ()

    def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(self, ledger: Ledger, home: Path) -> None:
        os.mkfifo(self.logs / "runner.log")
        assert logs.tail(log_of(ledger, home), 9).lines == ()

    def test_what_is_logged_later_is_followed_line_by_line(self, ledger: Ledger, home: Path) -> None:
        path = self.logs / "runner.log"
        path.write_text("one\n")
        log = log_of(ledger, home)
        end = logs.tail(log, 9)
        with path.open("a") as file:
            file.write("two\nthr")
        end = logs.after(log, end)
        assert end.lines == ("two",)
        with path.open("a") as file:
            file.write("ee\n")
        end = logs.after(log, end)
        assert end.lines == ("three",)
        assert logs.after(log, end).lines == ()

    def test_a_log_that_begins_anew_is_followed_from_its_beginning(self, ledger: Ledger, home: Path) -> None:
        path = self.logs / "runner.log"
        path.write_text("an old line\n")
        log = log_of(ledger, home)
        end = logs.tail(log, 9)
        path.rename(self.logs / "runner.log.1")
        assert logs.after(log, end).lines == ()
        path.write_text("new, and longer than the old one\n")
        assert logs.after(log, end).lines == ("new, and longer than the old one",)
