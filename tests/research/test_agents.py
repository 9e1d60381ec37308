"""Whole runs in which the real Codex CLI and the real Claude SDK are the specialists, on a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import Loaded
from ratchet.engines import Capabilities, Engine, Failure, Readiness, Request, Session, SessionFailed
from ratchet.kernel import Outcome, RunStatus, TrialStatus, Usage
from ratchet.ledger import Ledger
from ratchet.ledger.events import EventFilter, latest
from ratchet.ledger.research import list_lessons, list_specialists
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.ledger.trial_pages import latest_trials
from ratchet.ledger.trials import get_trial
from ratchet.ledger.usage import list_sessions, total
from ratchet.modelserver import ModelServer, Script, Turn, call, call_mcp, say
from ratchet.research.jobs import KIND
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.supervisor import research_run
from ratchet.runtime import JobContext, Kinds, Worker, open_runtime
from tests.engines.claude_subject import ClaudeSubject
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place
from tests.engines.llm.subject import LlmSubject
from tests.runtime.worker_process import load
from tests.waiting import eventually

BETTER = "move nearer to the top of the hill in x"
AGAIN = "move x further in the same direction"


@pytest.fixture(scope="module")
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def opened(kind: str, home: Path, server: ModelServer, turns: list[Turn]) -> tuple[Engine, Script]:
    if kind == "codex":
        codex = CodexSubject(Place(home), server)
        engine = codex.open(*turns)
        assert codex.script is not None
        return engine, codex.script
    claude = ClaudeSubject(Place(home), server)
    return claude.plays(turns), claude.script


def edits(kind: str, command: str) -> Turn:
    return call("exec_command", cmd=command) if kind == "codex" else call("Bash", command=command)


def carry(loaded: Loaded, ledger: Ledger, engine: Engine, wanted: ResearchRequest) -> int:
    async def handler(job: JobContext) -> Any:
        return await research_run(job, lambda _name, _surroundings: engine)

    kinds = Kinds()
    kinds.add(KIND, handler)
    worker = Worker(open_runtime(loaded, ledger, kinds))
    worker.start()
    try:
        run_id = start_research(worker.runtime, wanted)
        eventually(lambda: stands(ledger, run_id))
    finally:
        worker.stop(drain_seconds=0)
    return run_id


def stands(ledger: Ledger, run_id: int) -> bool:
    with ledger.read() as tx:
        return get_run(tx, run_id).status.final


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["codex", "claude"])
def test_an_agent_edits_submits_and_the_next_one_is_shown_the_row(
    kind: str, loaded: Loaded, ledger: Ledger, hill: Path, tmp_path: Path, model_server: ModelServer
) -> None:
    turns = [
        edits(kind, "sed -i 's/^X = 0.9/X = 0.5/' recipe.py"),
        call_mcp("ratchet", "submit_trial", hypothesis=BETTER, expected_delta="0.3"),
        call_mcp("ratchet", "write_lesson", lesson="a smaller x is better, so far"),
        say("It was kept."),
        edits(kind, "sed -i 's/^X = 0.5/X = 0.95/' recipe.py"),
        call_mcp("ratchet", "submit_trial", hypothesis=AGAIN, expected_delta="0.1"),
        say("That went down."),
    ]
    engine, script = opened(kind, tmp_path / "agent", model_server, turns)
    run_id = carry(loaded, ledger, engine, ResearchRequest(task=str(hill), trials=2))
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        rows = latest_trials(tx, run_id)
        sessions = list_sessions(tx, run_id=run_id)
        [step] = list_steps(tx, run_id)
        outcomes = [attempt.outcome for attempt in list_attempts(tx, step.id)]
        [lesson] = list_lessons(tx, run_id)
    assert run.status is RunStatus.COMPLETED, run.reason
    assert [(row.exp_id, row.status, row.hypothesis) for row in rows[:2]] == [
        ("002", TrialStatus.DISCARD, AGAIN),
        ("001", TrialStatus.KEEP, BETTER),
    ]
    assert rows[0].parent == 1
    assert outcomes == [Outcome.PASSED, Outcome.FAILED]
    assert lesson.text == "a smaller x is better, so far"
    assert all(each.usage.tokens and each.transcript for each in sessions)
    prompts = [each.said for each in script.requests]
    assert BETTER not in prompts[0]
    assert BETTER in prompts[4]
    assert "a smaller x is better, so far" in prompts[4]


@pytest.mark.soak
def test_an_agent_without_tools_hands_in_what_it_leaves(loaded: Loaded, ledger: Ledger, hill: Path) -> None:
    from tests.engines.fixed import FixedEngine

    better = (hill / "recipe.py").read_text().replace("X = 0.9", "X = 0.4")
    engine = FixedEngine({"recipe.py": better}, text="I changed x.\nHYPOTHESIS: **lower x** should be higher")
    run_id = carry(loaded, ledger, engine, ResearchRequest(task=str(hill), trials=1))
    with ledger.read() as tx:
        trial = get_trial(tx, run_id, 1)
    assert (trial.status, trial.hypothesis) == (TrialStatus.KEEP, "lower x** should be higher")


class Persistent:
    """An engine that hands in three trials in one session, and notes the objects of the repository after each."""

    name = "persistent"
    capabilities = Capabilities(edits_files=True, own_tools=True)

    def __init__(self, research: Path) -> None:
        self._research = research
        self.seen: list[dict[Path, int]] = []

    async def propose(self, request: Request) -> Session:
        assert request.workspace is not None
        [submit] = [tool for tool in request.tools if tool.name == "submit_trial"]
        recipe = request.workspace / "recipe.py"
        for number in range(3):
            recipe.write_text(recipe.read_text() + f"Z{number} = {number}\n")
            await submit.run({"hypothesis": f"one more line, the {number}th", "expected_delta": "0"})
            # A file that is written again is another one.
            objects = self._research.glob("*/repo.git/objects/??/*")
            self.seen.append({path: path.stat().st_ino for path in objects})
        return Session(self.name, text="that was all")

    async def check(self) -> Readiness:
        return Readiness(True, "always")


@pytest.mark.soak
def test_a_session_of_several_trials_writes_each_commit_once(
    loaded: Loaded, ledger: Ledger, hill: Path
) -> None:
    with (hill / "task.toml").open("a") as file:
        file.write("[sessions]\ntrials = 3\n")
    engine = Persistent(loaded.home / "research")
    run_id = carry(loaded, ledger, engine, ResearchRequest(task=str(hill), trials=3))
    first, _, last = engine.seen
    assert len(last) == len(first) + 6  # a commit, a tree and a file each
    assert first.items() <= last.items()
    with ledger.read() as tx:
        assert len(latest_trials(tx, run_id)) == 4


class Untidy:
    """An engine that leaves another file beside its change of the recipe, and in its last session none."""

    name = "untidy"
    capabilities = Capabilities(edits_files=True)

    def __init__(self) -> None:
        self._left = ["notes.txt", "sitecustomize.py", "evaluator/evaluate.py"]

    async def propose(self, request: Request) -> Session:
        assert request.workspace is not None
        recipe = request.workspace / "recipe.py"
        recipe.write_text(recipe.read_text().replace("X = 0.9", "X = 0.4"))
        if self._left:
            stray = request.workspace / self._left.pop(0)
            stray.parent.mkdir(exist_ok=True)
            stray.write_text("def score(given):\n    return {'height': 99}\n")
        return Session(self.name, text="HYPOTHESIS: a lower x should be higher")

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def test_an_agent_that_leaves_anything_else_hands_in_nothing_and_is_charged_no_trial(
    url: str, loaded: Loaded, ledger: Ledger, hill: Path
) -> None:
    loaded = load(
        loaded.home, url, **{"research.backoff_seconds": 0.01, "research.backoff_cap_seconds": 0.02}
    )
    run_id = carry(loaded, ledger, Untidy(), ResearchRequest(task=str(hill), trials=1, parallel=1))
    with ledger.read() as tx:
        rows = latest_trials(tx, run_id)
        [specialist] = list_specialists(tx, run_id)
        pauses = latest(tx.connection, where=EventFilter(type="research.pause"))
    assert [(row.number, row.status) for row in rows] == [(1, TrialStatus.KEEP), (0, TrialStatus.BASELINE)]
    assert specialist.sessions == 4
    said = " ".join(each.message or "" for each in pauses)
    for stray in ("notes.txt", "sitecustomize.py", "evaluator/evaluate.py"):
        assert f"files that no candidate may have: {stray} is no part of the recipe" in said


class Talker:
    """An engine that continues answering, at 30 cents each, until its session has used more than it was given."""

    name = "talker"
    capabilities = Capabilities(edits_files=True, reports_usage=True)

    def __init__(self) -> None:
        self._both = asyncio.Barrier(2)

    async def propose(self, request: Request) -> Session:
        await self._both.wait()
        used = Usage()
        while request.limits.exceeded_by(used) is None and used.cost_usd < 5:
            used += Usage(input_tokens=1, cost_microusd=300_000)
        session = Session(self.name, text="and so on", usage=used)
        raise SessionFailed(Failure.BUDGET, "it used more than it was given", session=session)

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def test_sessions_side_by_side_share_a_budget_and_the_run_stops_when_it_is_gone(
    url: str, loaded: Loaded, ledger: Ledger, hill: Path
) -> None:
    with (hill / "task.toml").open("a") as file:
        file.write('[[specialist]]\nname = "one"\n[[specialist]]\nname = "two"\n')
    loaded = load(loaded.home, url, **{"research.stagger_seconds": 0})
    wanted = ResearchRequest(task=str(hill), trials=10, parallel=2, cost_usd=1.0)
    run_id = carry(loaded, ledger, Talker(), wanted)
    with ledger.read() as tx:
        run, used = get_run(tx, run_id), total(tx, "run", run_id)
        pauses = latest(tx.connection, where=EventFilter(type="research.pause"))
    # Each was given half a dollar, and passed it with its second answer.
    assert used.cost_usd == 1.2
    assert (run.status, run.result["stopped"]) == (
        RunStatus.COMPLETED,
        "the budget of $1.00 is used up ($1.20)",
    )
    assert not pauses


class SlowTalker(Talker):
    """The same, but the first session ends when the second was counted."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self._begun = 0

    async def propose(self, request: Request) -> Session:
        self._begun += 1
        is_first = self._begun == 1
        await self._both.wait()
        if is_first:
            await asyncio.to_thread(eventually, self._counted)
            # Only so that the run stops meanwhile; what it says must not depend on it.
            await asyncio.sleep(0.3)
        session = Session(self.name, text="and so on", usage=Usage(input_tokens=1, cost_microusd=3_300_000))
        raise SessionFailed(Failure.BUDGET, "it used more than it was given", session=session)

    def _counted(self) -> bool:
        with self._ledger.read() as tx:
            return bool(total(tx, "run", 1).cost_usd)


def test_what_was_used_is_told_after_the_sessions_beside_have_ended_too(
    url: str, loaded: Loaded, ledger: Ledger, hill: Path
) -> None:
    with (hill / "task.toml").open("a") as file:
        file.write('[[specialist]]\nname = "one"\n[[specialist]]\nname = "two"\n')
    loaded = load(loaded.home, url, **{"research.stagger_seconds": 0})
    wanted = ResearchRequest(task=str(hill), trials=10, parallel=2, cost_usd=0.5)
    run_id = carry(loaded, ledger, SlowTalker(ledger), wanted)
    with ledger.read() as tx:
        run, used = get_run(tx, run_id), total(tx, "run", run_id)
    assert used.cost_usd == 6.6
    assert run.result["stopped"] == "the budget of $0.5000 is used up ($6.60)"


def test_a_plain_model_does_research_with_what_was_measured_in_its_prompt(
    loaded: Loaded, ledger: Ledger, hill: Path, tmp_path: Path, model_server: ModelServer
) -> None:
    def edit(old: str, new: str) -> Turn:
        block = f"FILE: recipe.py\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
        return say(f"{block}\nHYPOTHESIS: {BETTER}")

    first = "X = 0.9  # search: 0.0..1.0"
    turns = [
        say("Lower x a little."),
        edit(first, "X = 0.5"),
        edit("X = 0.5", "X = 'half'"),
        say(""),
        say(""),
    ]
    subject = LlmSubject(Place(tmp_path / "llm"), model_server)
    run_id = carry(loaded, ledger, subject.open(*turns), ResearchRequest(task=str(hill), trials=2))
    with ledger.read() as tx:
        rows = {row.exp_id: row for row in latest_trials(tx, run_id)}
        sessions = list_sessions(tx, run_id=run_id)
    assert (rows["001"].status, rows["001"].hypothesis) == (TrialStatus.KEEP, BETTER)
    assert rows["002"].status is TrialStatus.CRASH
    assert all(each.usage.tokens for each in sessions)
    _, again, last = (each.said for each in subject.script.requests)
    assert "there is no edit in it" in again
    assert "X = 0.5" in last
    assert '"measurements": {"x": 0.5, "y": 0.9}' in last
