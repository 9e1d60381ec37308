"""`ratchet agent …` on agents as an Architect leaves them, on both databases."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.contract import place_of
from ratchet.ledger import Ledger
from ratchet.ledger.agents import AgentRow, get_agent, quarantine_version
from ratchet.ledger.runs import create_run
from tests.agents.made_up import NAME, current, make_two_versions, make_version
from tests.cli.conftest import Ratchet
from tests.cli.program import Program

COMMANDS = (
    *(("show",), ("versions",), ("diff",), ("tools",), ("call", "greet"), ("feedback", "better"), ("logs",)),
    *(
        ("rollback",),
        ("promote", "0.0.0"),
        ("pin", "0.0.0"),
        ("pin", "latest"),
        ("state",),
        ("delete", "--yes"),
    ),
)

MISTAKES = (
    (("create", NAME), "the text is missing"),
    (("create", NAME, "x", "--from-file", "-"), "the text is given twice"),
    (("create", NAME, " "), "cannot be empty"),
    (("create", "No Name", "x"), "an agent cannot be called 'No Name'"),
    (("create", NAME, "x", "--engine", "nobody"), "no engine 'nobody'"),
    (("create", NAME, "--from-file", "/nowhere"), "/nowhere cannot be read"),
    (("feedback", NAME), "the text is missing"),
    (("call", NAME, "greet", "who=you", "--arguments", "{}"), "arguments are given twice"),
    (("call", NAME, "greet", "--arguments", "{"), "--arguments is not JSON"),
    (("call", NAME, "greet", "--arguments", "[]"), "--arguments is no JSON object"),
)


@pytest.fixture
def greeter(ledger: Ledger, home: Path) -> AgentRow:
    """An agent at 0.1.0, made from 0.0.0."""
    return make_two_versions(ledger, home)


def directory(home: Path, agent: AgentRow) -> Path:
    return place_of(home, NAME).version(str(agent.current))


def test_a_home_without_agents_says_how_to_make_one(ratchet: Ratchet, ledger: Ledger) -> None:
    done = ratchet("agent", "list")
    assert (done.code, done.out) == (0, "")
    assert "ratchet agent create NAME" in done.err
    assert ratchet("agent", "list", "--json").json == []


def test_agents_are_listed_with_their_current_versions(ratchet: Ratchet, greeter: AgentRow) -> None:
    table = ratchet("agent", "list").out.splitlines()
    assert table[0].split() == ["agent", "status", "version", "commit", "changed", "description"]
    assert table[1].split()[:4] == [NAME, "ready", "0.1.0", str(greeter.current)[:12]]
    [listed] = ratchet("agent", "list", "--json").json
    assert (listed["name"], listed["version"], listed["commit"]) == (NAME, "0.1.0", greeter.current)
    assert ratchet("agent", "list", "--after", NAME, "--json").json == []


def test_one_agent_is_shown_with_its_address_and_its_runs(ratchet: Ratchet, greeter: AgentRow) -> None:
    shown = ratchet("agent", "show", NAME)
    assert shown.code == 0, shown.err
    assert "http://127.0.0.1:8125/agents/greeter/runner/mcp" in shown.out
    assert "greet, wave" in shown.out
    assert "create" in shown.out
    told = ratchet("agent", "show", NAME, "--json").json
    assert (told["version"], told["current"]["summary"], told["address"]["is_up"]) == (
        "0.1.0",
        "less formal",
        False,
    )


def test_an_agent_that_there_is_not_is_an_error(ratchet: Ratchet, ledger: Ledger) -> None:
    for verb, *rest in COMMANDS:
        done = ratchet("agent", verb, "nobody", *rest)
        assert (done.code, done.out) == (1, ""), verb
        assert "error: agent nobody does not exist" in done.err, verb


def test_versions_are_drawn_as_a_graph(
    ratchet: Ratchet, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    with ledger.read() as tx:
        parent = get_agent(tx, NAME).current
    first = ratchet("agent", "versions", NAME, "--json").json[-1]["commit"]
    make_version(
        ledger, home, NAME, "0.1.0", parent=first, runner="# other\n", summary="in Latin", promoted=False
    )
    lines = ratchet("agent", "versions", NAME).out.splitlines()
    assert [line[:3].rstrip() for line in lines[1:]] == ["o", "| @", "o"]
    assert "ready current" in lines[2]
    told = ratchet("agent", "versions", NAME, "--json").json
    assert [(each["version"], each["is_current"], each["on_line"], each["parent"]) for each in told] == [
        ("0.1.0", False, False, first),
        ("0.1.0", True, True, first),
        ("0.0.0", False, True, None),
    ]
    assert told[1]["commit"] == parent
    before = str(told[1]["id"])
    older = ratchet("agent", "versions", NAME, "--before", before, "-n", "1", "--json").json
    assert [each["version"] for each in older] == ["0.0.0"]


def test_the_last_change_is_shown_as_a_patch(ratchet: Ratchet, greeter: AgentRow) -> None:
    done = ratchet("agent", "diff", NAME)
    assert done.code == 0, done.err
    assert done.out.startswith("diff --git a/metadata.json b/metadata.json\n")
    assert done.out.endswith("-print('hello')\n+print('hi')\n")
    assert done.err.splitlines()[1:] == ["tools added: wave"]
    backwards = ratchet("agent", "diff", NAME, "0.1.0", "v0.0.0", "--json").json
    assert (backwards["old"]["version"], backwards["new"]["version"]) == ("0.1.0", "0.0.0")
    assert (backwards["tools"]["removed"], backwards["tools"]["least"]) == (["wave"], "major")


def test_a_rollback_takes_the_version_before_and_a_promotion_goes_forward(
    ratchet: Ratchet, ledger: Ledger, greeter: AgentRow
) -> None:
    back = ratchet("agent", "rollback", NAME)
    assert (back.code, back.out.split(" (")[0]) == (0, "greeter is back at 0.0.0")
    assert current(ledger) != greeter.current
    forward = ratchet("agent", "promote", NAME, "0.1.0", "--json")
    assert (forward.json["version"], current(ledger)) == ("0.1.0", greeter.current)
    again = ratchet("agent", "promote", NAME, "0.1.0")
    assert again.out.startswith("greeter is 0.1.0 (")
    assert again.out.endswith("already.\n")


def test_a_quarantined_version_is_promoted_only_by_force(
    ratchet: Ratchet, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    made = make_version(ledger, home, NAME, "0.2.0", parent=greeter.current, promoted=False)
    with ledger.write() as tx:
        quarantine_version(tx, greeter, made.commit, "it crashed 4 times")
    refused = ratchet("agent", "promote", NAME, "0.2.0")
    assert (refused.code, current(ledger)) == (1, greeter.current)
    assert "quarantined: it crashed 4 times" in refused.err
    assert ratchet("agent", "promote", NAME, "0.2.0", "--force").code == 0
    assert current(ledger) == made.commit


def test_a_pin_holds_until_it_is_taken_away(ratchet: Ratchet, ledger: Ledger, greeter: AgentRow) -> None:
    pinned = ratchet("agent", "pin", NAME, "0.0.0")
    assert "is pinned at 0.0.0" in pinned.out
    assert "pinned: new versions do not move the address" in ratchet("agent", "show", NAME).out
    free = ratchet("agent", "pin", NAME, "latest", "--json")
    assert (free.json["pinned"], free.json["version"]) == (False, "0.0.0")


def test_a_version_that_cannot_be_meant_is_misuse(ratchet: Ratchet, greeter: AgentRow) -> None:
    done = ratchet("agent", "promote", NAME, "the good one")
    assert done.code == 2
    assert "'the good one' does not name a version" in done.err


def test_a_log_is_shown_and_told_as_json(ratchet: Ratchet, home: Path, greeter: AgentRow) -> None:
    (directory(home, greeter) / "logs" / "runner.log").write_text("one\ntwo\n")
    (directory(home, greeter) / "logs" / "tuner.out").write_text("Traceback\n")
    assert ratchet("agent", "logs", NAME, "-n", "1").out == "two\n"
    told = ratchet("agent", "logs", NAME, "--server", "tuner", "--printed", "--json").json
    assert (told["server"], told["lines"], told["commit"]) == ("tuner", ["Traceback"], greeter.current)
    nothing = ratchet("agent", "logs", NAME, "--version", "0.0.0")
    assert (nothing.code, nothing.out) == (0, "")
    assert "has logged nothing" in nothing.err


@pytest.mark.soak
def test_a_log_is_followed_until_the_reader_has_enough(
    program: Program,
    home: Path,
    greeter: AgentRow,
    ending: Callable[[subprocess.Popen[str]], subprocess.Popen[str]],
) -> None:
    path = directory(home, greeter) / "logs" / "runner.log"
    path.write_text("one\n")
    following = ending(program.start("agent", "logs", NAME, "--follow", "--json"))
    assert following.stdout is not None
    assert json.loads(following.stdout.readline()) == {"line": "one"}
    with path.open("a") as log:
        log.write("two\n")
    assert json.loads(following.stdout.readline()) == {"line": "two"}
    following.send_signal(2)
    assert following.wait(30) == 0


def test_the_state_is_shown_as_it_is_and_as_it_was_and_brought_back(
    ratchet: Ratchet, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    store = StateStore(directory(home, greeter))
    store.begin({"greetings": 0}, by="architect")
    with store.edit(by="runner") as state:
        state["greetings"] = 7
    assert ratchet("agent", "state", NAME).json == {"greetings": 7}
    assert ratchet("agent", "state", NAME, "--at", "1").json == {"greetings": 0}
    changes = ratchet("agent", "state", NAME, "--history", "--json").json
    assert [(each["number"], each["by"]) for each in changes] == [(2, "runner"), (1, "architect")]
    done = ratchet("agent", "state", NAME, "--restore", "1")
    assert done.out == "greeter has the state of change 1 again, as change 3.\n"
    assert ratchet("agent", "state", NAME).json == {"greetings": 0}
    table = ratchet("agent", "state", NAME, "--history", "-n", "1").out.splitlines()
    assert table[0].split() == ["change", "made", "by", "restored"]
    assert ratchet("agent", "state", NAME, "--history", "--before", "2", "--json").json[0]["number"] == 1


def test_a_change_that_there_was_not_is_told_apart_from_misuse(
    ratchet: Ratchet, home: Path, greeter: AgentRow
) -> None:
    StateStore(directory(home, greeter)).begin({"greetings": 0})
    absent = ratchet("agent", "state", NAME, "--at", "9")
    assert (absent.code, "change 9" in absent.err) == (1, True)
    both = ratchet("agent", "state", NAME, "--at", "1", "--history")
    assert (both.code, "exclude each other" in both.err) == (2, True)


def test_an_agent_is_deleted_only_with_a_yes(
    ratchet: Ratchet, ledger: Ledger, home: Path, greeter: AgentRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ratchet("agent", "delete", NAME)
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    assert current(ledger) == greeter.current
    done = ratchet("agent", "delete", NAME, "--yes", "--json").json
    assert Path(done["directory"]).is_dir()
    assert not place_of(home, NAME).repository.exists()
    assert ratchet("agent", "show", NAME).code == 1


def test_a_purge_leaves_nothing_of_the_files(ratchet: Ratchet, home: Path, greeter: AgentRow) -> None:
    done = ratchet("agent", "delete", NAME, "--yes", "--purge", "--json").json
    assert done["directory"] is None
    assert not list((home / "agents").rglob("runner*"))


def test_making_an_agent_is_left_to_a_worker(ratchet: Ratchet, ledger: Ledger) -> None:
    done = ratchet("agent", "create", NAME, "Greet people.", "--engine", "codex", "--detach", "--json")
    assert done.code == 0, done.err
    shown = ratchet("agent", "show", NAME, "--json").json
    assert (shown["status"], shown["description"], shown["engine"]) == ("creating", "Greet people.", "codex")
    assert shown["runs"][0]["run"] == done.json["run"]
    twice = ratchet("agent", "create", NAME, "Greet people.", "--engine", "codex", "--detach")
    assert (twice.code, "there is an agent 'greeter' already" in twice.err) == (1, True)


def test_feedback_is_left_to_a_worker_with_all_that_was_said(
    ratchet: Ratchet, home: Path, greeter: AgentRow
) -> None:
    text = home / "long.txt"
    text.write_text("Be less formal.\n" * 1000)
    done = ratchet(
        *("agent", "feedback", NAME, "--from-file", str(text), "--severity", "high", "--version", "0.0.0"),
        *("--engine", "codex", "--model", "m", "--detach", "--json"),
    )
    assert done.code == 0, done.err
    run = ratchet("runs", "show", str(done.json["run"]), "--json").json
    spec = run["spec"]
    assert (spec["severity"], spec["engine"], spec["model"]) == ("high", "codex", "m")
    assert spec["version"] == ratchet("agent", "versions", NAME, "--json").json[-1]["commit"]
    assert spec["message"].startswith("Be less formal.\n")


def test_what_cannot_be_meant_is_refused_before_anything_is_recorded(
    ratchet: Ratchet, ledger: Ledger
) -> None:
    for words, told in MISTAKES:
        done = ratchet("agent", *words)
        assert (done.code, done.out) == (2, ""), words
        assert told in done.err, words
    assert ratchet("agent", "list", "--json").json == []


def test_a_file_that_is_too_long_or_no_text_is_refused(
    ratchet: Ratchet, ledger: Ledger, tmp_path: Path
) -> None:
    long, binary = tmp_path / "long", tmp_path / "binary"
    long.write_bytes(b"x" * (1_048_576 + 1))
    binary.write_bytes(b"\xff\xfe")
    for file, told in ((long, "longer than 1048576 bytes"), (binary, "not UTF-8")):
        done = ratchet("agent", "create", NAME, "--from-file", str(file))
        assert (done.code, told in done.err) == (2, True), done.err


def test_words_of_others_do_not_reach_a_terminal_as_control_characters(
    ratchet: Ratchet, ledger: Ledger, home: Path, greeter: AgentRow
) -> None:
    with ledger.write() as tx:
        create_run(tx, "agent", NAME, spec={"action": "feedback", "message": "\x1b[2Jgone\nand more"})
    assert "\x1b" not in ratchet("agent", "show", NAME).out
