"""What production shows of an agent, and what follows: counts, incidents, proposals, budgets, split traffic."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ratchet.agents.architect import send_feedback
from ratchet.agents.call_record import CallRecorder, NotedCall, fingerprint, plain
from ratchet.agents.checks.replay import ReplayedCall
from ratchet.agents.contract import Role
from ratchet.agents.learning import (
    keep_lesson,
    learn,
    leave_remark,
    propose,
    send_as_caller,
    standing,
)
from ratchet.agents.publication import used_of
from ratchet.agents.traffic import CallCounts, begin, decide, ruling, watch_evals
from ratchet.config.workflow_settings import Agents
from ratchet.kernel import Conflict, Misuse, RunStatus
from ratchet.ledger import EventFilter, Ledger, change_run
from ratchet.ledger.agents import add_version, get_agent, get_version, set_learning
from ratchet.ledger.evals import add_eval, list_calls, list_evals, remove_eval
from ratchet.ledger.events import latest
from ratchet.ledger.production import (
    IncidentStatus,
    TrafficStatus,
    call_totals,
    count_calls,
    get_incident,
    list_incidents,
    list_remarks,
    open_drift,
    open_split,
    waiting_remarks,
)
from ratchet.ledger.runs import get_run, list_runs
from ratchet.runtime import Runtime, Worker
from tests.agents.settled import SHAPES, settle
from tests.agents.test_changing import done, made

NAME = "greeter"


def call(
    tool: str = "greet",
    arguments: Any = None,
    *,
    failed: str | None = None,
    commit: str,
    lost: str | None = None,
    **more: Any,
) -> NotedCall:
    params = {"name": tool, "arguments": {"name": "Ada"} if arguments is None else arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    text = {"content": [{"type": "text", "text": failed or "hello"}], "isError": failed is not None}
    answer = b"" if lost else json.dumps({"jsonrpc": "2.0", "id": 1, "result": text}).encode()
    return NotedCall(NAME, commit, "runner", json.dumps(body).encode(), answer, 0.02, lost=lost, **more)


def recorded(runtime: Runtime, *calls: NotedCall, **settings: Any) -> None:
    recorder = CallRecorder(runtime.ledger, Agents(**settings), runtime.jobs)
    for each in calls:
        recorder.note(each)
    recorder.write()


def agent_of(ledger: Ledger) -> Any:
    with ledger.read() as tx:
        return get_agent(tx, NAME)


def test_every_call_is_counted_by_version_and_tool_whatever_share_is_recorded(
    runtime: Runtime, ledger: Ledger
) -> None:
    commit = settle(runtime)
    unrecorded = [call(commit=commit, recorded=False)] * 3
    odd = call("made-up-by-a-caller", commit=commit, recorded=False)
    recorded(
        runtime,
        *unrecorded,
        call(commit=commit),
        call(failed="no", commit=commit),
        call(lost="x", commit=commit),
        odd,
    )
    with ledger.read() as tx:
        found = {each.tool: each for each in call_totals(tx)}
        kept = list_calls(tx, agent_of(ledger).id)
    assert found.keys() == {"greet", "other"}
    greet = found["greet"]
    assert (greet.calls, greet.failed, greet.errors, greet.version) == (6, 1, 1, "0.0.0")
    assert (greet.within_ms(0.5), greet.milliseconds) == (25, 120)
    assert [each.outcome for each in kept] == ["error", "failed", "ok"]


def test_calls_that_go_wrong_in_the_same_way_are_one_incident_with_an_input(
    runtime: Runtime, ledger: Ledger
) -> None:
    commit = settle(runtime)
    recorded(
        runtime,
        *[call(arguments={"name": name}, failed=f"KeyError: '{name}'", commit=commit) for name in "abc"],
        call("count", {}, lost="its server ended: it hung up", commit=commit),
        # What does not fit the schema, or names no tool, is a mistake of the caller.
        call(arguments={"nome": "Ada"}, failed="1 validation error", commit=commit),
        call("nowhere", failed="Unknown tool: nowhere", commit=commit),
    )
    with ledger.read() as tx:
        crash, failing = list_incidents(tx, agent_of(ledger).id)
    assert (failing.kind, failing.count, failing.versions) == ("failed", 3, [commit])
    assert (failing.arguments, failing.message) == ({"name": "a"}, "KeyError: 'a'")
    assert (crash.kind, crash.tool, crash.arguments) == ("error", "count", {})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError: 'Ada'", "KeyError: 'Grace'"),
        ("no row 17 in /var/lib/a/b.db", "no row 4 in /tmp/c.db"),
        ("it took 0.31 s\nTraceback: x", "it took 12 s\nTraceback: y"),
    ],
)
def test_what_differs_from_call_to_call_makes_no_other_incident(one: str, other: str) -> None:
    assert fingerprint("runner", "greet", "failed", plain(one)) == fingerprint(
        "runner", "greet", "failed", plain(other)
    )
    assert plain(one) != plain("ValueError: empty")


def test_a_caller_who_chooses_the_words_of_an_error_cannot_flood_the_incidents(
    runtime: Runtime, ledger: Ledger
) -> None:
    commit = settle(runtime)
    words = [f"no such {chr(97 + a)}{chr(97 + b)}x" for a in range(10) for b in range(10)]
    recorded(runtime, *[call(failed=each, commit=commit) for each in words])
    with ledger.read() as tx:
        found = list_incidents(tx, agent_of(ledger).id, limit=200)
    assert len(found) == 31
    assert sum(each.count for each in found) == 100


def test_a_person_proposes_a_change_whose_eval_is_the_input_of_the_incident(
    runtime: Runtime, ledger: Ledger
) -> None:
    commit = settle(runtime)
    recorded(runtime, call(failed="KeyError: 'Ada'", commit=commit))
    agent = agent_of(ledger)
    run_id = propose(runtime, NAME, 1, actor="test")
    with pytest.raises(Conflict, match=f"run {run_id} is about incident 1"):
        propose(runtime, NAME, 1, actor="test")
    with ledger.read() as tx:
        spec = get_run(tx, run_id).spec
        assert get_incident(tx, agent.id, 1).status is IncidentStatus.PROPOSED
    assert (spec["source"], spec["incident"]["arguments"]) == ("person", {"name": "Ada"})
    assert "greet" in spec["message"]
    assert "KeyError" in spec["message"]

    # A version was promoted for it: the call binds every later one, and what happens again there is news.
    with ledger.write() as tx:
        keep_lesson(tx, agent, run_id)
        keep_lesson(tx, agent, run_id)
        [kept] = list_evals(tx, agent.id)
        assert get_incident(tx, agent.id, 1).status is IncidentStatus.RESOLVED
    assert (kept.tool, kept.arguments, kept.expect, kept.created_by) == (
        "greet",
        {"name": "Ada"},
        {},
        "incident 1",
    )
    with pytest.raises(Conflict, match=f"incident 1 was fixed by run {run_id}"):
        propose(runtime, NAME, 1, actor="test")
    recorded(runtime, call(failed="KeyError: 'Bo'", commit=commit))
    with ledger.read() as tx:
        assert get_incident(tx, agent.id, 1).status is IncidentStatus.RESOLVED
    recorded(runtime, call(failed="KeyError: 'Bo'", commit="d" * 40))
    with ledger.read() as tx:
        # Of a version that is not known no tools are known.
        assert get_incident(tx, agent.id, 1).count == 2


def test_what_callers_wrote_into_an_incident_asks_for_no_other_answers(
    runtime: Runtime, ledger: Ledger
) -> None:
    """Its message names `count`, since a caller wrote so: that tool is still to answer as before."""
    commit = settle(runtime)
    recorded(runtime, call(arguments={"name": "count"}, failed="no count, use count", commit=commit))
    run_id = propose(runtime, NAME, 1, actor="test")
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        work = SimpleNamespace(
            base=get_version(tx, agent_of(ledger).id, commit),
            agent=agent_of(ledger),
            settings=runtime.settings.agents,
            job=LearnJob(runtime),
            spec=run.spec,
            message=run.spec["message"],
        )
    work.spec = {**run.spec, "incident": None, "about": ["count"]}
    assert used_of(work).asked.tools == {"count"}  # type: ignore[arg-type]
    work.spec = run.spec
    asked = used_of(work).asked  # type: ignore[arg-type]
    assert not asked.include(ReplayedCall(1, Role.RUNNER, "count", {}), failed_before=True)
    assert asked.include(ReplayedCall(2, Role.RUNNER, "greet", {"name": "Bo"}), failed_before=True)
    assert not asked.include(ReplayedCall(3, Role.RUNNER, "greet", {"name": "Bo"}), failed_before=False)


def test_an_incident_whose_run_failed_is_open_again_and_one_with_a_hidden_input_needs_arguments(
    runtime: Runtime, ledger: Ledger
) -> None:
    commit = settle(runtime)
    recorded(runtime, call(arguments={"name": "x" * 300}, failed="no", commit=commit), record_bytes=100)
    agent = agent_of(ledger)
    with pytest.raises(Misuse, match="not whole"):
        propose(runtime, NAME, 1, actor="test")
    run_id = propose(runtime, NAME, 1, arguments={"name": "Bo"}, actor="test")
    with ledger.write() as tx:
        change_run(tx, run_id, RunStatus.RUNNING)
        change_run(tx, run_id, RunStatus.FAILED, reason="no")
        assert standing(tx, get_incident(tx, agent.id, 1)) is IncidentStatus.OPEN


class LearnJob:
    """The job as a worker hands it over."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.ledger = runtime, runtime.ledger
        self.payload = {"agent": NAME, "agent_id": agent_of(runtime.ledger).id}
        self.write = runtime.ledger.write


def learnt(runtime: Runtime) -> dict[str, Any]:
    return learn(LearnJob(runtime))  # type: ignore[arg-type]


def with_settings(runtime: Runtime, **values: Any) -> None:
    agents = runtime.settings.agents.model_copy(update=values)
    runtime.settings = runtime.settings.replace(agents=agents)


def test_incidents_start_a_change_by_themselves_only_where_that_is_allowed(
    runtime: Runtime, ledger: Ledger
) -> None:
    commit = settle(runtime)
    wrong = [call(failed="KeyError: 'Ada'", commit=commit)] * 3
    recorded(runtime, *wrong)
    assert learnt(runtime)["reason"] == "nothing waits"
    with ledger.write() as tx:
        set_learning(tx, agent_of(ledger), "auto")
    begun = learnt(runtime)
    with ledger.read() as tx:
        assert get_run(tx, begun["run"]).spec["source"] == "incident"
        jobs_before = [job for job in list_runs(tx, kind="agent", name=NAME) if not job.status.final]
    assert learnt(runtime)["reason"] == "nothing waits"
    assert len(jobs_before) == 2


def test_a_flood_of_forged_remarks_starts_one_run_a_time_and_no_more_than_the_day_allows(
    runtime: Runtime, ledger: Ledger
) -> None:
    commit = settle(runtime)
    with_settings(runtime, learn_runs_per_day=2)
    for number in range(40):
        leave_remark(runtime, NAME, commit, f"One star! {number}", actor="agent")
    leave_remark(runtime, NAME, commit, "too stiff", actor="agent")
    with ledger.read() as tx:
        assert [each.count for each in waiting_remarks(tx, agent_of(ledger).id)] == [40, 1]
    first = learnt(runtime)["run"]
    with ledger.read() as tx:
        message = get_run(tx, first).spec["message"]
    assert "40 times" in message
    assert "too stiff" in message

    # The same words about the same version, today, are known; other ones wait until that run has ended.
    leave_remark(runtime, NAME, commit, "one star", actor="agent")
    leave_remark(runtime, NAME, commit, "far too slow", actor="agent")
    assert learnt(runtime)["reason"] == "a change is under way"
    end(ledger, first)
    second = learnt(runtime)["run"]
    end(ledger, second)
    leave_remark(runtime, NAME, commit, "far too loud", actor="agent")
    held = [learnt(runtime) for _ in range(3)]
    assert all("learn_runs_per_day = 2" in each["reason"] for each in held)
    with ledger.read() as tx:
        events = latest(tx.connection, where=EventFilter(type="agent.held"), limit=10)
        assert len([run for run in list_runs(tx, kind="agent", name=NAME) if run.id >= first]) == 2
        assert len(waiting_remarks(tx, agent_of(ledger).id)) == 1
        assert len(list_remarks(tx, agent_of(ledger).id)) == 4
    assert len(events) == 1
    # A person is not held up by what strangers said.
    assert send_feedback(runtime, NAME, "say ahoy", actor="person") > second


def end(ledger: Ledger, run_id: int) -> None:
    with ledger.write() as tx:
        change_run(tx, run_id, RunStatus.RUNNING)
        change_run(tx, run_id, RunStatus.FAILED, reason="no")


def test_feedback_with_a_key_starts_one_run_a_time_and_no_more_than_the_day_allows(
    runtime: Runtime, ledger: Ledger
) -> None:
    settle(runtime)
    with_settings(runtime, learn_runs_per_day=1)
    first = send_as_caller(runtime, NAME, "too stiff", actor="api of agent greeter")
    with pytest.raises(Conflict, match=f"run {first} is under way"):
        send_as_caller(runtime, NAME, "far too stiff", actor="api of agent greeter")
    end(ledger, first)
    with pytest.raises(Conflict, match="learn_runs_per_day = 1"):
        send_as_caller(runtime, NAME, "far too stiff", actor="api of agent greeter")
    assert send_feedback(runtime, NAME, "say ahoy", actor="person") > first


def test_very_many_different_remarks_are_refused(runtime: Runtime) -> None:
    commit = settle(runtime)
    words = [f"{chr(97 + a)}{chr(97 + b)}x" for a in range(10) for b in range(10)]
    for each in words:
        leave_remark(runtime, NAME, commit, each, actor="agent")
    leave_remark(runtime, NAME, commit, words[0], actor="agent")
    with pytest.raises(Conflict, match="wait already"):
        leave_remark(runtime, NAME, commit, "another", actor="agent")


@pytest.mark.parametrize(
    ("current", "candidate", "is_last", "status"),
    [
        ((400, 4), (40, 20), False, TrafficStatus.STOPPED),
        ((1800, 9), (200, 1), True, TrafficStatus.PROMOTED),
        ((1800, 180), (200, 20), True, TrafficStatus.ASKS),
        ((360, 0), (40, 0), False, None),
        ((1800, 0), (200, 0), True, TrafficStatus.PROMOTED),
    ],
)
def test_a_split_is_decided_by_how_many_calls_went_wrong(
    current: tuple[int, int], candidate: tuple[int, int], is_last: bool, status: TrafficStatus | None
) -> None:
    found, reason = ruling(CallCounts(*current), CallCounts(*candidate), margin=0.05, is_last=is_last)
    assert found is status
    assert f"{candidate[1]} of {candidate[0]} calls went wrong" in reason


@pytest.mark.parametrize(
    ("wrong", "status", "is_current"),
    [(0, TrafficStatus.PROMOTED, True), (20, TrafficStatus.STOPPED, False), (2, TrafficStatus.ASKS, False)],
)
def test_a_split_promotes_stops_or_asks(
    runtime: Runtime, ledger: Ledger, wrong: int, status: TrafficStatus, is_current: bool
) -> None:
    first = settle(runtime)
    other = "e" * 40
    settings = Agents(traffic_calls=100, traffic_margin=0.06)
    with ledger.write() as tx:
        agent = get_agent(tx, NAME)
        add_version(tx, agent, other, "0.1.0", parent=first, summary="new", tools=SHAPES, run_id=None)
        # What was called before does not count.
        count_calls(tx, agent.id, counted(other, 50, 50))
        split = begin(tx, agent, "0.1.0", 10, settings)
        count_calls(tx, agent.id, counted(first, 1_000, 20))
        assert decide(tx, agent) is None
        count_calls(tx, agent.id, counted(other, 100, wrong))
        ended = decide(tx, agent)
        assert ended is not None
        assert (ended.id, ended.status) == (split.id, status)
        assert (get_agent(tx, NAME).current == other) is is_current
        assert (open_split(tx, agent.id) is None) is (status is not TrafficStatus.ASKS)
        if status is TrafficStatus.ASKS:
            with pytest.raises(Conflict, match="is the current one"):
                begin(tx, agent, "0.0.0", 10, settings)


def counted(commit: str, calls: int, wrong: int) -> list[dict[str, Any]]:
    same = {"commit": commit, "server": "runner", "tool": "greet", "milliseconds": 5}
    return [{**same, "outcome": "failed" if number < wrong else "ok"} for number in range(calls)]


@pytest.mark.soak
def test_a_change_for_an_incident_must_answer_its_call_and_then_binds_the_next_one(
    runtime: Runtime, worker: Worker, ledger: Ledger
) -> None:
    commit = made(runtime).result["commit"]
    recorded(runtime, call(failed="KeyError: 'Ada'", commit=commit))
    agent = agent_of(ledger)

    failed = done(ledger, propose(runtime, NAME, 1, expect={"contains": "welcome"}, actor="test"))
    assert failed.status is RunStatus.FAILED
    assert "incident 1: greet" in str(failed.reason)
    with ledger.read() as tx:
        assert list_evals(tx, agent.id) == []
        assert standing(tx, get_incident(tx, agent.id, 1)) is IncidentStatus.OPEN

    fixed = done(ledger, propose(runtime, NAME, 1, expect={"contains": "ahoy"}, actor="test"))
    assert (fixed.status, fixed.result["promoted"]) == (RunStatus.COMPLETED, True), fixed.reason
    with ledger.read() as tx:
        [kept] = list_evals(tx, agent.id)
        assert get_incident(tx, agent.id, 1).status is IncidentStatus.RESOLVED
        certificate = get_version(tx, agent.id, fixed.result["commit"]).certificate
    assert (kept.tool, kept.expect) == ("greet", {"contains": "ahoy"})
    assert certificate["proposed_by"]["incident"] == 1
    assert [(each["eval"], each["passed"]) for each in certificate["evals"]] == [(-1, True)]

    undone = done(ledger, send_feedback(runtime, NAME, "say hello", actor="test"))
    assert "eval 1" in str(undone.reason)


@pytest.mark.soak
def test_a_watch_makes_an_incident_of_an_eval_that_is_not_answered_any_more(
    runtime: Runtime, ledger: Ledger
) -> None:
    settle(runtime)
    agent = agent_of(ledger)
    greet = {"server": "runner", "tool": "greet", "arguments": {"name": "Ada"}, "by": "test"}
    with ledger.write() as tx:
        wrong = add_eval(tx, agent.id, **greet, expect={"contains": "hola"})
        add_eval(tx, agent.id, **greet, expect={"contains": "hello"})
    job = LearnJob(runtime)
    found = asyncio.run(watch_evals(job))  # type: ignore[arg-type]
    assert (found["evals"], found["failed"], found["rolled_back_to"]) == (2, 1, None)
    with ledger.write() as tx:
        [drift] = list_incidents(tx, agent.id)
        [(name, needed)] = open_drift(tx, limit=10)
        remove_eval(tx, agent.id, wrong.id)
    assert (drift.kind, drift.expect, name) == ("drift", {"contains": "hola"}, NAME)
    assert needed == drift
    assert asyncio.run(watch_evals(job))["failed"] == 0  # type: ignore[arg-type]
