"""`ratchet protocol …`: real git with a real remote, real sandboxes, and agents that are small programs."""

from __future__ import annotations

import io
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger, change_run
from ratchet.ledger.projects import add_project, change_project, get_project
from ratchet.ledger.protocols import get_protocol, list_protocol_steps, list_protocols
from ratchet.protocols.actions import create_protocol
from ratchet.runtime import Runtime
from tests.agentkit.servers import free_port
from tests.cli.conftest import Ratchet
from tests.cli.program import MODULE, Program
from tests.cli.protocol_world import Shop, make_shop, wish
from tests.forges.github_stand_in import GitHubStandIn
from tests.forges.stand_in import Asked, Said
from tests.protocols.world import git
from tests.waiting import eventually

Keep = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]
ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
NAME = "0001-change-the-shop"


@pytest.fixture
def shop(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Somebody stands in the repository."""
    made = make_shop(tmp_path, home)
    monkeypatch.chdir(made.place)
    return made


@pytest.mark.soak
def test_one_command_in_a_repository_does_everything(ratchet: Ratchet, shop: Shop) -> None:
    told = wish("Get ready.\nwrite setup.txt ready", "Write b.\nwrite b.txt bad\nfix b.txt good")
    done = ratchet("protocol", "new", told, "--run")
    assert done.code == 0, done.err
    assert f"{shop.place} is project 1 now: shop." in done.err
    for line in (
        "planned: 2 steps",
        "00-setup: is carried out by author",
        "01-b: goes back to its author",
        "01-b: try 2",
        "pushed: ",
    ):
        assert line in done.err, line
    assert done.err.count("no pull request") == 1
    assert ("status    completed" in done.out, f"branch    {NAME}" in done.out) == (True, True)
    assert shop.git("show", f"{NAME}:b.txt") == "good"

    found = ratchet("protocol", "show", NAME, "--json").json
    assert (found["status"], found["project"], found["pushed"]) == (
        "completed",
        "shop",
        shop.git("rev-parse", NAME),
    )
    assert [(step["step_name"], step["attempts"], step["outcome"]) for step in found["steps"]] == [
        ("00-setup", 1, "passed"),
        ("01-b", 2, "passed"),
    ]
    assert (Path(found["worktree_path"]) / "b.txt").read_text() == "good\n"
    [listed] = ratchet("protocol", "list", "--project", "shop", "--json").json
    assert listed["protocol_name"] == NAME
    assert " 2/2 " in ratchet("protocol", "list").out
    assert ratchet("protocol", "list", "--unfinished", "--json").json == []

    log = ratchet("protocol", "log", NAME).out
    headings = [line.split(":")[0] for line in log.splitlines() if line.startswith("== ")]
    assert headings == [
        "== plan, attempt 1",
        "== 00-setup, attempt 1",
        "== 01-b, attempt 1",
        "== 01-b, attempt 2",
    ]
    second = ratchet("protocol", "log", NAME, "--step", "01", "--attempt", "2", "--json").json
    assert [(each["step_name"], each["number"]) for each in second] == [("01-b", 2)]
    assert "done with 01-b" in second[0]["log"]
    assert ratchet("protocol", "log", NAME, "--follow").code == 0

    again = ratchet("protocol", "new", told, "--json").json
    assert (again["project_id"], again["protocol_name"], again["status"]) == (
        1,
        "0002-change-the-shop",
        "pending",
    )


@ONE_DATABASE
def test_the_same_again_before_it_has_ended_names_what_goes_on_with_the_first(
    ratchet: Ratchet, shop: Shop, ledger: Ledger
) -> None:
    assert ratchet("protocol", "new", "Sell tea.").code == 0
    with ledger.write(actor="test") as tx:
        [first] = list_protocols(tx)
        change_run(tx, first.run_id, RunStatus.PLANNING)
    again = ratchet("protocol", "new", "Sell tea.\n", "--run", "--engine", "author", "--reviewer", "reviewer")
    assert again.code == 1
    assert (
        f"protocol {first.run_id}, 0001-sell-tea, is to do the same and has not ended: it is planning"
        in again.err
    )
    assert f"`ratchet protocol resume {first.run_id}` resumes it" in again.err
    with ledger.read() as tx:
        assert len(list_protocols(tx)) == 1
    assert ratchet("protocol", "new", "Sell tea.", "--name", "0002-tea").code == 0


@ONE_DATABASE
def test_what_is_not_committed_and_a_detached_head_are_told_with_the_base(
    ratchet: Ratchet, shop: Shop
) -> None:
    assert "The change starts from" not in ratchet("protocol", "new", "Sell tea.").err
    (shop.place / "new.txt").write_text("new\n")
    git(shop.place, "checkout", "-q", "--detach")
    told = ratchet("protocol", "new", "Sell rice.").err
    assert "The change starts from main: HEAD is detached here, at " in told
    assert "uncommitted changes are no part of it (new.txt)." in told


@pytest.mark.soak
@ONE_DATABASE
def test_one_that_is_blocked_names_the_next_commands_and_goes_on_after_an_approval(
    ratchet: Ratchet, shop: Shop
) -> None:
    told = wish("Get ready.\nwrite a.txt bad", "Write b.\nwrite b.txt two")
    done = ratchet("protocol", "new", told, "--run")
    assert done.code == 1
    assert "step 00-setup is failed: review: The change has the word bad in it." in done.out
    for command in ("protocol log 2 --step 00", "protocol retry 2", "step approve 2/00"):
        assert f"ratchet {command}" in done.err
    assert ratchet("protocol", "retry", "2", "--json").code == 1
    assert "b.txt" not in shop.git("ls-tree", "--name-only", NAME)

    approved = ratchet("step", "approve", f"{NAME}/00", "--by", "Ada", "--json")
    assert approved.code == 0, approved.err
    assert approved.json["status"] == "completed"
    assert approved.json["steps"][0]["reason"] == "approved by Ada"
    assert (shop.git("show", f"{NAME}:a.txt"), shop.git("show", f"{NAME}:b.txt")) == ("bad", "two")


@pytest.mark.soak
@ONE_DATABASE
def test_steps_are_started_by_hand_when_that_is_wanted(ratchet: Ratchet, shop: Shop) -> None:
    told = wish("Get ready.\nwrite a.txt one", "Write b.\nwrite b.txt two", "Write c.\nwrite c.txt three")
    made = ratchet("protocol", "new", told, "--name", "0042-by-hand", "--run", "--manual")
    assert made.code == 0, made.err
    assert "ratchet protocol run-next 2" in made.err
    assert (
        ratchet("protocol", "run-next", "0042-by-hand", "--detach").out == "Protocol 2 waits for a worker.\n"
    )
    went_on = ratchet("protocol", "resume", "0042-by-hand", "--json")
    assert (went_on.code, went_on.json["status"]) == (0, "running")
    assert [step["status"] for step in went_on.json["steps"]] == ["completed", "pending", "pending"]
    assert ratchet("step", "run", "2/2", "--json").code == 0
    last = ratchet("protocol", "run-next", "2", "--json")
    assert (last.code, last.json["status"]) == (0, "completed")
    none = ratchet("protocol", "run-next", "2")
    assert (none.code, none.err.splitlines()[0]) == (1, "error: step to run in protocol 2 does not exist")


def begun(program: Program, ledger: Ledger, shop: Shop, told: str) -> subprocess.Popen[str]:
    """`ratchet protocol new`, once a step of it runs."""
    program.env["RATCHET_HOME"] = str(program.home)
    process = subprocess.Popen(
        [*MODULE, "protocol", "new", told, "--run"],
        cwd=shop.place,
        env=program.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def tried() -> bool:
        with ledger.read() as tx:
            return any(
                each.status == "running"
                for one in list_protocols(tx)
                for each in list_protocol_steps(tx, one.run_id)
            )

    try:
        eventually(tried)
    except BaseException:
        process.kill()
        raise
    return process


@pytest.mark.soak
@ONE_DATABASE
def test_ctrl_c_pauses_it_and_it_can_be_resumed(
    program: Program, ledger: Ledger, tmp_path: Path, ending: Keep
) -> None:
    shop, port = make_shop(tmp_path, program.home), free_port()
    process = ending(begun(program, ledger, shop, wish(f"Wait.\nwait {port}", "Write a.\nwrite a.txt one")))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "paused" in out
    assert "ratchet protocol resume 2" in err
    assert "Traceback" not in err
    with socket.create_server(("127.0.0.1", port)):
        done = program("protocol", "resume", "2", "--json", seconds=90)
    assert (done.code, done.json["status"]) == (0, "completed"), done.err


@pytest.mark.soak
@ONE_DATABASE
def test_one_that_was_killed_and_is_typed_again_is_resumed_by_the_line_that_is_named(
    program: Program, ledger: Ledger, tmp_path: Path, ending: Keep
) -> None:
    shop, port = make_shop(tmp_path, program.home), free_port()
    told = wish(f"Wait.\nwait {port}", "Write a.\nwrite a.txt one")
    process = ending(begun(program, ledger, shop, told))
    process.kill()
    process.communicate(timeout=60)
    again = subprocess.run(
        [*MODULE, "protocol", "new", told, "--run"],
        cwd=shop.place,
        env=program.env,
        capture_output=True,
        check=False,
        text=True,
        timeout=90,
    )
    assert (again.returncode, "`ratchet protocol resume 2` resumes it" in again.stderr) == (1, True), again
    with ledger.read() as tx:
        assert len(list_protocols(tx)) == 1
    # Nothing is said to be at work on it.
    [advised] = program("protocol", "show", "2", "--json").json["next"]
    assert (advised["command"], "is gone" in advised["why"]) == ("ratchet protocol resume 2", True)
    assert (
        "The process that worked on it is gone: `ratchet protocol resume 2` or"
        in program("runs", "show", "2").err
    )
    with socket.create_server(("127.0.0.1", port)):
        done = program("protocol", "resume", "2", "--json", seconds=200)
    assert (done.code, done.json["status"]) == (0, "completed"), done.err
    assert git(shop.place, "branch", "--format=%(refname:short)", "--all").count("0002-") == 0


def configure(home: Path, lines: str) -> None:
    """Add to the settings of protocols."""
    settings = home / "ratchet.toml"
    settings.write_text(settings.read_text().replace("[protocols]", f"[protocols]\n{lines}"))


class GitHub(GitHubStandIn):
    """Passes every commit, once CI has begun to work."""

    passing = False

    def answer(self, asked: Asked) -> Said:
        if asked.path.endswith("/check-runs") and self.passing:
            run = {"name": "test", "status": "completed", "conclusion": "success", "html_url": None}
            return Said(200, {"check_runs": [run]})
        return super().answer(asked)


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as started:
        yield started


@pytest.mark.soak
@ONE_DATABASE
def test_ci_is_asked_for_at_the_forge_and_a_protocol_that_waits_is_not_done(
    ratchet: Ratchet,
    shop: Shop,
    home: Path,
    ledger: Ledger,
    github: GitHub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(home, f'ci = "required"\ngithub_url = "{github.url}"')
    assert ratchet("project", "add", str(shop.remote), "--name", "shop", "--ci-provider", "github").code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(GitHubStandIn.token))
    assert ratchet("project", "secrets", "shop", "--set", "forge_token").code == 0
    with ledger.write(actor="test") as tx:
        facts = {**get_project(tx, 1).facts, "required_checks": ["test"]}
        change_project(tx, 1, remote="github.com/acme/demo", facts=facts)

    told = wish("Nothing to do.", "Write a.\nwrite a.txt one")
    waits = ratchet("protocol", "new", told, "--project", "shop", "--run", "--no-wait", "--json")
    assert (waits.code, waits.json["status"]) == (1, "running"), waits.err
    step = waits.json["steps"][0]
    assert (step["status"], step["ci"]) == ("needs_qa", "pending")
    shown = ratchet("protocol", "show", "2")
    assert "running: 00-setup waits for CI" in shown.out
    assert "ratchet protocol resume 2" in shown.err
    [pull] = github.pulls.values()
    assert pull["draft"]

    github.passing = True
    done = ratchet("protocol", "resume", "2", "--json")
    assert (done.code, done.json["status"]) == (0, "completed"), done.err
    assert [step["ci"] for step in done.json["steps"]] == ["passed", "passed"]
    assert done.json["pull_request"]["draft"] is False


@pytest.mark.soak
@ONE_DATABASE
def test_a_forge_that_cannot_be_asked_is_told_and_nothing_waits_for_ever(
    ratchet: Ratchet, shop: Shop, home: Path
) -> None:
    configure(home, 'ci = "required"')
    done = ratchet("protocol", "new", wish("Nothing to do.", "Write a.\nwrite a.txt one"), "--run")
    assert done.code == 1
    assert "The forge cannot be asked for checks" in done.err
    assert "A webhook to `ratchet serve` resumes it as well." in done.err


@ONE_DATABASE
def test_what_cannot_be_meant_is_refused_before_anything_is_made(
    ratchet: Ratchet, shop: Shop, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ratchet("protocol", "new").code == 2
    assert ratchet("protocol", "new", "   ").err.startswith("error: the description is empty")
    assert "--detach needs --run" in ratchet("protocol", "new", "A change.", "--detach").err
    unknown = ratchet("protocol", "new", "A change.", "--engine", "nobody")
    assert (unknown.code, "there is no engine 'nobody'" in unknown.err) == (2, True)
    assert ratchet("protocol", "new", "A change.", "--project", "none").code == 1
    monkeypatch.chdir(tmp_path)
    outside = ratchet("protocol", "new", "A change.", "--run")
    assert outside.code == 2
    assert outside.err.splitlines() == [
        f"error: {tmp_path} is in no git repository",
        "hint: go to one, or name a project; `ratchet project list` shows them, `ratchet project add ADDRESS` adds one",
    ]
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    monkeypatch.chdir(tmp_path / "empty")
    assert "has no commit on a branch yet" in ratchet("protocol", "new", "A change.").err
    with ledger.read() as tx:
        assert list_protocols(tx) == []
    assert ratchet("project", "list", "--json").json == []


@pytest.mark.soak
@ONE_DATABASE
def test_an_engine_that_is_not_installed_is_exit_3(ratchet: Ratchet, shop: Shop, home: Path) -> None:
    absent = '[engines.command.absent]\nargv = ["no-such-agent"]\nedits_files = false\n'
    settings = home / "ratchet.toml"
    settings.write_text(settings.read_text().replace('planner = "planner"', 'planner = "absent"') + absent)
    done = ratchet("protocol", "new", "A change.", "--run")
    assert done.code == 3, done.err
    assert "no-such-agent is not on the PATH" in done.err
    assert ratchet("runs", "list", "--json").json == []


@ONE_DATABASE
def test_protocols_are_named_by_number_or_by_name_in_their_project(
    ratchet: Ratchet, runtime: Runtime
) -> None:
    with runtime.ledger.write(actor="test") as tx:
        for project in ("shop", "mill"):
            number = add_project(tx, project)
            create_protocol(tx, runtime, number, "0001-paint", description="Paint it.")
        create_protocol(tx, runtime, number, "0002-varnish")
    assert ratchet("protocol", "show", "0002-varnish", "--json").json["project"] == "mill"
    assert ratchet("protocol", "show", "0001-paint", "--project", "shop", "--json").json["id"] == 1
    several = ratchet("protocol", "show", "0001-paint")
    assert several.code == 2
    assert "add --project with one of: shop, mill" in several.err
    for wanted in (("7",), ("0009-none",), ("2", "--project", "shop")):
        unknown = ratchet("protocol", "show", *wanted)
        assert (unknown.code, "hint: `ratchet protocol list" in unknown.err) == (1, True), wanted
    assert "ratchet protocol start 1" in ratchet("protocol", "show", "1").err


@ONE_DATABASE
def test_what_does_not_fit_the_status_is_refused_with_what_does(ratchet: Ratchet, runtime: Runtime) -> None:
    with runtime.ledger.write(actor="test") as tx:
        number = create_protocol(tx, runtime, add_project(tx, "shop"), "0001-paint")
    early = ratchet("protocol", "open-pr", "0001-paint")
    assert (early.code, early.err) == (
        1,
        f"error: protocol {number} has no branch yet\nhint: ratchet protocol start {number}\n",
    )
    assert (
        ratchet("protocol", "log", "0001-paint").err
        == f"Protocol {number} has no attempts yet; it is pending.\n"
    )
    assert ratchet("protocol", "log", "0001-paint", "--attempt", "1").code == 2
    assert "it has: none yet" in ratchet("protocol", "log", "0001-paint", "--step", "3").err
    paused = ratchet("protocol", "pause", "0001-paint")
    assert (paused.code, paused.out) == (
        0,
        f"Protocol {number} is paused; `ratchet protocol resume {number}` resumes it.\n",
    )
    detached = ratchet("protocol", "start", "0001-paint", "--detach")
    assert detached.code == 0
    assert "No worker runs on this ledger now" in detached.err
    assert ratchet("protocol", "cancel", "0001-paint", "--json").json["status"] == "cancelled"
    assert ratchet("protocol", "cancel", "0001-paint").code == 0
    for action in ("start", "resume", "pause"):
        assert ratchet("protocol", action, "0001-paint").code == 1
    with runtime.ledger.read() as tx:
        assert get_protocol(tx, number).status == "cancelled"


@pytest.mark.no_ledger
def test_without_a_ledger_nothing_is_made(ratchet: Ratchet, home: Path) -> None:
    for arguments in (
        ["protocol", "list"],
        ["protocol", "start", "1"],
        ["project", "show", "1"],
        ["project", "onboard", "1"],
        ["step", "run", "1"],
        ["spec", "audit"],
    ):
        done = ratchet(*arguments)
        assert (done.code, done.err.startswith("error: no ledger here")) == (2, True), arguments
    assert not home.exists()
