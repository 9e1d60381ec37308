"""Runs whose sessions begin elsewhere than at the best, share their budget, and try no program twice."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from ratchet.config import Loaded
from ratchet.engines import Capabilities, Engine, Readiness, Request, Session
from ratchet.engines.search import SearchEngine
from ratchet.kernel import Misuse, RatchetError, RunStatus, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import list_specialists
from ratchet.ledger.runs import get_run
from ratchet.ledger.trial_pages import latest_trials
from ratchet.ledger.trials import Trial
from ratchet.loop import ENDED, JUDGED, KEPT, OPENED, PROPOSED
from ratchet.research.start import ResearchRequest, start_research
from ratchet.research.strategy import ISLANDS, STRATEGIES
from ratchet.runtime import Runtime, open_runtime
from tests.protocols.world import write_agents
from tests.research.hill import write_hill
from tests.research.test_agents import carry as carry_one
from tests.research.test_agents import stands
from tests.research.test_search_runs import MIXED, carry
from tests.runtime.deaths import die_at
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.waiting import eventually


class Walker:
    """An engine that steps anywhere from the program that it is given, and notes its prompts."""

    name = "walker"
    capabilities = Capabilities(edits_files=True)

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self.prompts: list[str] = []
        self.systems: list[str | None] = []

    async def propose(self, request: Request) -> Session:
        assert request.workspace is not None
        self.prompts.append(request.prompt)
        self.systems.append(request.system)
        recipe = request.workspace / "recipe.py"
        number = re.compile(r"(?<== )[\d.]+", re.MULTILINE)
        recipe.write_text(number.sub(self._moved, recipe.read_text(), count=2))
        return Session(self.name, text="HYPOTHESIS: somewhere else it should be higher")

    def _moved(self, found: re.Match[str]) -> str:
        return repr(min(1.0, max(0.0, float(found[0]) + self._chance.gauss(0, 0.2))))

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def rows_of(ledger: Ledger, run_id: int) -> list[Trial]:
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        assert run.status is RunStatus.COMPLETED, run.reason
        return latest_trials(tx, run_id, limit=200)[::-1]


def test_islands_begin_from_their_own_programs_and_only_the_judge_moves_the_best(
    loaded: Loaded, ledger: Ledger, hill: Path
) -> None:
    engine = Walker()
    wanted = ResearchRequest(task=str(hill), trials=24, parallel=1, strategy="islands")
    rows = rows_of(ledger, carry_one(loaded, ledger, engine, wanted))
    scores = {row.number: row.score or 0.0 for row in rows}
    best, elsewhere = 0, 0
    for row in rows[1:]:
        assert row.parent is not None
        elsewhere += row.parent != best
        assert row.origin["strategy"] == "islands"
        assert 0 <= row.origin["island"] < ISLANDS
        assert row.compared_to == best
        assert (row.status is TrialStatus.KEEP) == (scores[row.number] > scores[best])
        best = row.number if row.status is TrialStatus.KEEP else best
    assert elsewhere > 5
    shown = [row for row in rows[1:] if row.origin.get("inspirations")]
    prompt = engine.prompts[shown[-1].number - 1]
    assert "# Other programs" in prompt
    assert all(f'"exp_id": "{number:03}"' in prompt for number in shown[-1].origin["inspirations"])
    assert "+X = " in prompt.partition("# Other programs")[2]


def test_best_of_n_tells_nothing_and_begins_from_the_baseline(
    loaded: Loaded, ledger: Ledger, hill: Path
) -> None:
    engine = Walker()
    wanted = ResearchRequest(task=str(hill), trials=4, parallel=1, strategy="best_of_n")
    rows = rows_of(ledger, carry_one(loaded, ledger, engine, wanted))
    assert [row.parent for row in rows[1:]] == [0] * 4
    assert not any("somewhere else" in prompt for prompt in engine.prompts)
    assert not any("read_lineage" in (system or "") for system in engine.systems)


def test_a_strategy_that_a_task_cannot_feed_is_refused_before_anything_is_spent(
    loaded: Loaded, ledger: Ledger, hill: Path
) -> None:
    engine = Walker()
    run_id = carry_one(loaded, ledger, engine, ResearchRequest(task=str(hill), trials=4, strategy="pareto"))
    with ledger.read() as tx:
        run = get_run(tx, run_id)
    assert run.status is RunStatus.FAILED
    assert "needs the scores of single instances" in (run.reason or "")
    assert not engine.prompts


def test_a_run_that_names_no_strategy_leaves_a_plateau(runtime: Runtime, hill: Path) -> None:
    run_id = start_research(runtime, ResearchRequest(task=str(hill), trials=4))
    with runtime.ledger.read() as tx:
        assert get_run(tx, run_id).spec["strategy"] == "adaptive"


def test_an_unknown_strategy_starts_no_run(runtime: Runtime, hill: Path) -> None:
    with pytest.raises(Misuse, match="there is no strategy 'clever'"):
        start_research(runtime, ResearchRequest(task=str(hill), trials=4, strategy="clever"))


class Repeater:
    """An engine that submits the same program in other words, then what it was before, then a new one."""

    name = "repeater"
    capabilities = Capabilities(edits_files=True, own_tools=True)

    def __init__(self) -> None:
        self.answers: list[str] = []

    async def propose(self, request: Request) -> Session:
        assert request.workspace is not None
        [submit] = [tool for tool in request.tools if tool.name == "submit_trial"]
        recipe = request.workspace / "recipe.py"
        first = recipe.read_text()
        texts = [
            first.replace("X = 0.9", "X = 0.95"),
            first.replace("X = 0.9", "# nearer to the edge\nX   =   0.95"),
            '"""The same as ever."""\n\n' + first,
            first.replace("X = 0.9", "X = 0.85"),
        ]
        for text in texts:
            recipe.write_text(text)
            given = {"hypothesis": "something that is quite new", "expected_delta": "0.1"}
            try:
                self.answers.append(await submit.run(given))
            except RatchetError as error:
                self.answers.append(str(error))
        return Session(self.name, text="that was all")

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def test_a_program_that_was_tried_before_costs_no_trial(loaded: Loaded, ledger: Ledger, hill: Path) -> None:
    with (hill / "task.toml").open("a") as file:
        file.write("[sessions]\ntrials = 4\n")
    engine = Repeater()
    rows = rows_of(ledger, carry_one(loaded, ledger, engine, ResearchRequest(task=str(hill), trials=2)))
    assert [row.status for row in rows] == [TrialStatus.BASELINE, TrialStatus.DISCARD, TrialStatus.KEEP]
    _, again, baseline, last = engine.answers
    assert "the program of trial 001 again" in again
    assert "the program of trial 000 again" in baseline
    assert '"keep"' in last


class Slow(Walker):
    """The same, but a session waits until the search beside it has nothing more to do."""

    async def propose(self, request: Request) -> Session:
        await asyncio.sleep(0.2)
        return await super().propose(request)


@pytest.mark.soak
def test_a_quick_search_does_not_take_the_trials_of_a_slow_agent(
    loaded: Loaded, ledger: Ledger, tmp_path: Path
) -> None:
    hill = write_hill(tmp_path / "mixed", task=MIXED)
    engines: dict[str | None, Engine] = {"search": SearchEngine(), "codex": Slow()}
    rows = rows_of(
        ledger, carry(loaded, ledger, engines, ResearchRequest(task=str(hill), trials=24, parallel=3))
    )
    made = Counter(row.specialist for row in rows)
    # A quarter of the trials is each one's by right.
    assert made["writer"] >= 6
    assert made["tuner"] >= 6


class Failing(Walker):
    async def propose(self, request: Request) -> Session:
        return Session(self.name, text="I would rather not")


@pytest.mark.soak
def test_one_that_only_fails_keeps_no_trials_from_others(
    url: str, loaded: Loaded, ledger: Ledger, tmp_path: Path
) -> None:
    hill = write_hill(tmp_path / "mixed", task=MIXED)
    engines: dict[str | None, Engine] = {"search": SearchEngine(), "codex": Failing()}
    loaded = load(
        loaded.home, url, **{"research.backoff_seconds": 0.01, "research.backoff_cap_seconds": 0.02}
    )
    rows = rows_of(
        ledger, carry(loaded, ledger, engines, ResearchRequest(task=str(hill), trials=12, parallel=2))
    )
    assert Counter(row.specialist for row in rows) == {"baseline": 1, "tuner": 12}


@pytest.mark.soak
def test_several_models_take_part_side_by_side(loaded: Loaded, ledger: Ledger, hill: Path) -> None:
    models: list[str | None] = []

    class Asked(Walker):
        async def propose(self, request: Request) -> Session:
            models.append(request.model)
            return await super().propose(request)

    wanted = ResearchRequest(task=str(hill), trials=8, parallel=1, model="small, large")
    rows = rows_of(ledger, carry_one(loaded, ledger, Asked(), wanted))
    assert {row.specialist for row in rows} == {"baseline", "generalist@small", "generalist@large"}
    assert set(models) == {"small", "large"}
    with ledger.read() as tx:
        assert len(list_specialists(tx, 1)) == 2


# Steps from where it stands, by a chance that a killed session does not use up.
STEPPER = """
import pathlib, random, re
recipe = pathlib.Path("recipe.py")
text = recipe.read_text()
step = lambda found: repr(min(1.0, max(0.0, float(found[0]) + random.gauss(0, 0.2))))
recipe.write_text(re.sub(r"(?<== )[0-9.]+", step, text, count=2))
print("HYPOTHESIS: a step to somewhere else is worth a trial")
"""
INSTANCES = """def score(given):
    answer = given["trial"]["answer"]
    x, y = float(answer["x"]), float(answer["y"])
    a, b = 1 - (x - 0.3) ** 2, 1 - (y - 0.6) ** 2
    return {"height": (a + b) / 2, "measurements": {"x": x, "y": y, "instance_a": a, "instance_b": b}}
"""
STAGES = (OPENED, PROPOSED, JUDGED, KEPT, ENDED)


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_run_killed_at_any_stage_of_a_strategys_step_ends_with_exactly_its_trials(
    strategy: str, stage: str, url: str, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    write_agents(tmp_path, author=STEPPER)
    loaded = load(tmp_path, url)
    runtime = open_runtime(loaded, ledger, make_kinds())
    hill = write_hill(tmp_path / "instances", evaluator=INSTANCES)
    die_at(tmp_path, f"loop:{stage}")
    fleet.add()
    wanted = ResearchRequest(task=str(hill), engine="author", trials=6, parallel=1, strategy=strategy)
    run_id = start_research(runtime, wanted)
    eventually(lambda: not (tmp_path / "death").exists())
    fleet.add()
    eventually(lambda: stands(ledger, run_id))
    rows = rows_of(ledger, run_id)
    assert [row.number for row in rows] == list(range(7))
    assert all(row.origin["strategy"] == strategy for row in rows[1:])
    valid = {row.number for row in rows if row.status is not None and row.status.valid}
    assert {row.parent for row in rows[1:]} <= valid
