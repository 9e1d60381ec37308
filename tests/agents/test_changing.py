"""The Architect at work: what becomes of an agent that is made, praised, blamed and broken."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ratchet.agentkit import StateStore
from ratchet.agents.actions import delete
from ratchet.agents.architect import AgentRequest, create_agent, send_feedback
from ratchet.agents.contract import AgentDirectory, place_of
from ratchet.agents.versions import find_version
from ratchet.agents.views import agents
from ratchet.kernel import Conflict, Misuse, RunStatus
from ratchet.ledger import EventFilter, Ledger, Run, change_run
from ratchet.ledger.agents import AgentStatus, get_agent, list_versions, move_current, set_pinned
from ratchet.ledger.events import latest
from ratchet.ledger.runs import get_run
from ratchet.runtime import Runtime, Worker
from tests.agents.settled import settle
from tests.runtime.deaths import places_passed
from tests.waiting import eventually

NAME = "greeter"


def done(ledger: Ledger, run_id: int) -> Run:
    def look() -> Run:
        with ledger.read() as tx:
            return get_run(tx, run_id)

    eventually(lambda: look().status.final)
    return look()


def made(runtime: Runtime, what: str = "create hello") -> Run:
    run_id = create_agent(runtime, AgentRequest(name=NAME, description=what), actor="test")
    return done(runtime.ledger, run_id)


def told(runtime: Runtime, message: str, **more: Any) -> Run:
    return done(runtime.ledger, send_feedback(runtime, NAME, message, actor="test", **more))


def current(runtime: Runtime) -> str:
    with runtime.ledger.read() as tx:
        found = get_agent(tx, NAME).current
    assert found is not None
    return found


def place(runtime: Runtime) -> AgentDirectory:
    return place_of(runtime.home, NAME)


def tree(runtime: Runtime) -> set[str]:
    return {path.name for path in place(runtime).root.iterdir() if not path.name.startswith(".")}


def git(directory: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(directory), *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def events(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        found = latest(tx.connection, where=EventFilter(type="agent."), limit=500)
    return [event.type for event in found]


def test_an_agent_is_made_praised_and_improved(runtime: Runtime, worker: Worker, ledger: Ledger) -> None:
    """One long life, since every version costs two starts."""
    born = made(runtime)
    assert born.status is RunStatus.COMPLETED, born.reason
    first = born.result["commit"]
    assert born.result["version"] == "0.0.0"
    assert tree(runtime) == {"repo.git", "states", first}
    directory = place(runtime).version(first)
    assert git(directory, "status", "--porcelain") == ""
    assert git(directory, "rev-parse", "HEAD") == first
    assert "state.json" not in git(directory, "ls-files")
    assert json.loads((directory / "metadata.json").read_text()) == {"version": "0.0.0"}

    # Nothing to do.
    assert told(runtime, "thank you").result["decision"] == "nothing"
    assert current(runtime) == first

    # A lesson goes into the state, beside what the servers have written meanwhile.
    with StateStore(directory).edit() as state:
        state["greeted"] = 7
    lesson = told(runtime, "remember politeness")
    assert lesson.result["decision"] == "state"
    assert StateStore(directory).read() == {"greeted": 7, "lessons": ["politeness"]}
    assert tree(runtime) == {"repo.git", "states", first}

    # A change of code makes a version, which takes the state along.
    second = told(runtime, "say ahoy", severity="high")
    assert (second.result["decision"], second.result["version"]) == ("code", "0.0.1")
    assert second.result["promoted"] is True
    new = second.result["commit"]
    assert current(runtime) == new
    assert tree(runtime) == {"repo.git", "states", first, new}
    assert StateStore(place(runtime).version(new)).read() == {"greeted": 7, "lessons": ["politeness"]}
    assert git(place(runtime).repository, "rev-parse", "refs/heads/main") == new
    assert git(place(runtime).repository, "rev-parse", "refs/tags/v0.0.1") == new
    assert git(place(runtime).version(new), "log", "--format=%H").split() == [new, first]
    assert git(directory, "log", "--format=%H").split() == [first]

    assert "agent.promoted" in events(ledger)


@pytest.mark.soak
def test_what_does_not_pass_changes_nothing_and_is_kept_to_be_looked_at(
    runtime: Runtime, worker: Worker
) -> None:
    first = made(runtime).result["commit"]
    before = StateStore(place(runtime).version(first)).read()

    for wanted, reason in (
        ("break the tests", "test"),
        ("break the syntax", "runner.py"),
        ("delete runner.py", "runner.py"),
        ("delete state.json", "state.json"),
        ("delete tests.py", "tests"),
        ("edit git", ".git"),
        ("lie", "nothing"),
        ("link out", "secrets"),
        ("forget everything", "greeted"),
        ("hoard", "bytes"),
        ("refuse", "no sense"),
    ):
        failed = told(runtime, wanted)
        assert failed.status is RunStatus.FAILED, wanted
        assert failed.reason is not None
        assert reason in failed.reason, wanted
        assert Path(failed.result["quarantine"]).is_dir(), wanted
        assert current(runtime) == first
        assert tree(runtime) == {"repo.git", "states", first, "quarantine"}
        assert StateStore(place(runtime).version(first)).read() == before
    assert git(place(runtime).version(first), "status", "--porcelain") == ""


@pytest.mark.soak
def test_an_engine_that_refuses_is_not_asked_again(runtime: Runtime, worker: Worker) -> None:
    settle(runtime)
    refused = told(runtime, "refuse")
    assert refused.status is RunStatus.FAILED
    assert refused.result["failure"] == "refused"
    assert places_passed(runtime.home).count("after the session") == 1


@pytest.mark.soak
def test_the_next_try_is_told_why_the_last_one_failed(runtime: Runtime, worker: Worker) -> None:
    made(runtime)
    fixed = told(runtime, "break the tests once")
    assert fixed.status is RunStatus.COMPLETED, fixed.reason
    assert places_passed(runtime.home).count("after the session") == 3
    assert "test_it_greets_by_name" in (runtime.home / "prompt").read_text()

    told(runtime, "break the syntax")
    told(runtime, "thank you")
    assert "runner.py" in (runtime.home / "prompt").read_text()
    told(runtime, "thank you")
    assert "Earlier tries" not in (runtime.home / "prompt").read_text()

    # Another agent of that name has nothing to do with it.
    told(runtime, "break the syntax")
    delete(runtime, NAME, actor="test")
    made(runtime)
    assert "Earlier tries" not in (runtime.home / "prompt").read_text()


@pytest.mark.soak
def test_a_change_that_is_refused_for_its_state_is_on_no_branch_and_takes_no_tag(
    runtime: Runtime, worker: Worker
) -> None:
    first = settle(runtime)
    settled = told(runtime, "quarrel once")
    assert settled.status is RunStatus.COMPLETED, settled.reason
    assert "/greeted" in (runtime.home / "prompt").read_text()
    repository, new = place(runtime).repository, settled.result["commit"]
    assert git(repository, "log", "--format=%H", "main").split() == [new, first]
    assert (
        git(repository, "tag", "--format=%(refname:short) %(objectname)")
        == f"v{settled.result['version']} {new}"
    )


@pytest.mark.soak
def test_an_older_version_is_changed_into_a_variant(runtime: Runtime, worker: Worker) -> None:
    first = made(runtime).result["commit"]
    second = told(runtime, "say ahoy").result["commit"]
    variant = told(runtime, "say hi", version=first)
    assert variant.result["version"] == "0.0.1"
    assert variant.result["promoted"] is False
    assert current(runtime) == second
    assert tree(runtime) == {"repo.git", "states", first, second, variant.result["commit"]}
    with runtime.ledger.read() as tx:
        agent = get_agent(tx, NAME)
        parents = {each.commit: each.parent for each in list_versions(tx, agent.id)}
    assert parents == {first: None, second: first, variant.result["commit"]: first}
    tags = {
        "v0.0.0": first,
        "v0.0.1": second,
        f"v0.0.1-{variant.result['commit'][:12]}": variant.result["commit"],
    }
    assert {tag: git(place(runtime).repository, "rev-parse", tag) for tag in tags} == tags
    with runtime.ledger.read() as tx:
        assert {tag: find_version(tx, agent, tag).commit for tag in tags} == tags

    with runtime.ledger.write() as tx:
        set_pinned(tx, get_agent(tx, NAME), True)
    pinned = told(runtime, "say moin")
    assert pinned.result["promoted"] is False
    assert current(runtime) == second


@pytest.mark.soak
def test_a_state_that_older_versions_wrote_is_brought_into_the_new_form(
    runtime: Runtime, worker: Worker
) -> None:
    first = made(runtime).result["commit"]
    with StateStore(place(runtime).version(first)).edit() as state:
        state["greeted"] = 3
    changed = told(runtime, "rename the counter")
    assert changed.status is RunStatus.COMPLETED, changed.reason
    new = StateStore(place(runtime).version(changed.result["commit"])).read()
    assert new == {"greetings": 3, "lessons": []}


@pytest.mark.soak
def test_two_feedbacks_on_one_version_come_one_after_the_other(runtime: Runtime, worker: Worker) -> None:
    first = made(runtime).result["commit"]
    runs = [
        send_feedback(runtime, NAME, message, version=first, actor="test")
        for message in ("say ahoy", "add shout")
    ]
    ends = [done(runtime.ledger, run_id) for run_id in runs]
    assert [end.result["version"] for end in ends] == ["0.0.1", "0.1.0"]
    with runtime.ledger.read() as tx:
        versions = list_versions(tx, get_agent(tx, NAME).id)
    assert versions[0].parent == ends[0].result["commit"]


@pytest.mark.soak
def test_two_agents_are_changed_at_the_same_time(runtime: Runtime, worker: Worker) -> None:
    settle(runtime, "left")
    settle(runtime, "right")
    runs = [
        send_feedback(runtime, "left", "meet left right", actor="test"),
        send_feedback(runtime, "right", "meet right left", actor="test"),
    ]
    ends = [done(runtime.ledger, run_id) for run_id in runs]
    assert [end.status for end in ends] == [RunStatus.COMPLETED] * 2, [end.reason for end in ends]


@pytest.mark.soak
@pytest.mark.parametrize("broken", ["exits", "failing_tests"])
def test_an_agent_that_cannot_be_made_leaves_its_name_free(
    broken: str, runtime: Runtime, worker: Worker, ledger: Ledger
) -> None:
    failed = made(runtime, "create nothing at all")
    assert failed.status is RunStatus.FAILED
    with ledger.read() as tx:
        assert get_agent(tx, NAME).status is AgentStatus.FAILED
    assert tree(runtime) == {"repo.git", "quarantine"}
    again = made(runtime, f"create broken {broken}")
    assert again.status is RunStatus.COMPLETED, again.reason
    with pytest.raises(Conflict, match="already"):
        create_agent(runtime, AgentRequest(name=NAME, description="another"), actor="test")


def test_an_agent_whose_creation_is_blocked_says_so_with_run_and_reason(
    runtime: Runtime, ledger: Ledger
) -> None:
    wanted = AgentRequest(name=NAME, description="create hello")
    old = create_agent(runtime, wanted, actor="test")
    with ledger.write() as tx:
        change_run(tx, old, RunStatus.BLOCKED, reason="an older one")
    delete(runtime, NAME, actor="test")
    run_id = create_agent(runtime, wanted, actor="test")
    with ledger.write() as tx:
        assert agents(tx)[0].status == "creating"
        change_run(tx, run_id, RunStatus.BLOCKED, reason="the key is refused")
        [shown] = agents(tx)
    assert (shown.status, shown.reason) == ("blocked", f"run {run_id} is blocked: the key is refused")
    for again in (
        lambda: send_feedback(runtime, NAME, "Be kinder.", actor="test"),
        lambda: create_agent(runtime, wanted, actor="test"),
    ):
        with pytest.raises(Conflict, match=f"run {run_id} is blocked: the key is refused") as refused:
            again()
        assert "ratchet runs resume" in (refused.value.hint or "")


def test_words_that_cannot_be_meant_are_refused_before_anything_is_recorded(runtime: Runtime) -> None:
    for name in ("", "Greeter", "../out", "a" * 65, "architect", "a@b"):
        with pytest.raises(Misuse):
            create_agent(runtime, AgentRequest(name=name, description="x"), actor="test")
    with pytest.raises(Misuse, match="empty"):
        create_agent(runtime, AgentRequest(name=NAME, description=" \n\0"), actor="test")
    with pytest.raises(Misuse, match="bytes"):
        create_agent(runtime, AgentRequest(name=NAME, description="x" * 1_100_000), actor="test")
    with pytest.raises(Misuse, match="edits no files"):
        create_agent(runtime, AgentRequest(name=NAME, description="x", engine="llm"), actor="test")
    with pytest.raises(Misuse, match="there is no engine"):
        create_agent(runtime, AgentRequest(name=NAME, description="x", engine="nobody"), actor="test")


@pytest.mark.soak
def test_a_megabyte_is_read_in_parts(runtime: Runtime, worker: Worker) -> None:
    for ask, short in ((made, "create hello"), (told, "thank you")):
        text = f"{short}\n" + "x" * 1_000_000
        long = ask(runtime, text)
        assert long.status is RunStatus.COMPLETED, long.reason
        assert len((runtime.home / "prompt").read_text()) < 80_000
        assert "logs/message.txt" in (runtime.home / "prompt").read_text()
        assert (runtime.home / "message.txt").read_text() == text


@pytest.mark.soak
def test_a_version_that_was_taken_back_meanwhile_is_not_promoted_over(
    runtime: Runtime, worker: Worker
) -> None:
    first = made(runtime).result["commit"]
    second = told(runtime, "say ahoy").result["commit"]
    with runtime.ledger.write() as tx:
        move_current(tx, get_agent(tx, NAME), first, expected=second, why="rolled_back")
    third = told(runtime, "say moin")
    assert third.result["promoted"] is True
    assert git(place(runtime).repository, "rev-parse", f"{third.result['commit']}^") == first


@pytest.mark.soak
def test_an_agent_of_another_home_is_not_touched(runtime: Runtime, worker: Worker) -> None:
    settle(runtime)
    place(runtime).root.rename(runtime.home / "elsewhere")
    failed = told(runtime, "say ahoy")
    assert failed.status is RunStatus.FAILED
    assert "does not lie in" in str(failed.reason)
    assert not place(runtime).root.exists()
