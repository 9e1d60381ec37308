"""The search engine: that it can be relied on, and that it finds better values."""

from __future__ import annotations

import ast
import asyncio
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.engines import Engine, Failure, McpServer, Request, Session, SessionFailed
from ratchet.engines.search import SearchEngine
from ratchet.engines.search.program import find_constants
from ratchet.engines.search.space import SearchPoint, SearchState, SearchTrial, Space
from ratchet.kernel import Misuse
from tests.engines.conftest import Place
from tests.engines.search_subject import PROGRAM, ask, program, values


@pytest.fixture
def engine() -> Engine:
    return SearchEngine()


@pytest.mark.parametrize(
    "field",
    [
        {"output_schema": {"type": "object"}},
        {"mcp_servers": (McpServer("lab", argv=("true",)),)},
        {"model": "gpt"},
        {"workspace": None},
        {"data": {"trials": 3}},
        {"data": {"trial": -1}},
        {"data": {"goal": "up"}},
        {"data": {"feedback": [{"score": 1.0}]}},
        {"data": {"files": []}},
    ],
)
def test_a_request_that_it_can_never_serve_is_misuse(
    engine: Engine, tmp_path: Path, field: dict[str, Any]
) -> None:
    path = program(tmp_path)
    with pytest.raises(Misuse):
        asyncio.run(engine.propose(Request(**{"prompt": "", "workspace": tmp_path, **field})))
    assert path.read_text() == PROGRAM


def test_an_unknown_option_is_misuse(place: Place) -> None:
    with pytest.raises(Misuse, match="search:everything"):
        place.open("search:everything")


def test_it_is_ready_without_a_key(place: Place) -> None:
    readiness = asyncio.run(place.open("search").check())
    assert readiness.ready
    assert "cmaes" in readiness.detail


def fresh(tmp_path: Path, name: str) -> Path:
    directory = tmp_path / name
    program(directory)
    return directory


@pytest.mark.soak
def test_equal_requests_give_equal_proposals_in_any_process(engine: Engine, tmp_path: Path) -> None:
    first = ask(engine, fresh(tmp_path, "one"), seed=3, trial=5)
    directory = fresh(tmp_path, "two")
    script = (
        "import asyncio, json, pathlib, sys; from ratchet.engines import Request;"
        " from ratchet.engines.search import SearchEngine;"
        " request = Request('', workspace=pathlib.Path(sys.argv[1]), data={'seed': 3, 'trial': 5});"
        " session = asyncio.run(SearchEngine().propose(request));"
        " print(json.dumps([dict(session.data), session.resume]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [dict(first.data), first.resume]
    assert (directory / "model.py").read_bytes() == (tmp_path / "one" / "model.py").read_bytes()


def test_seeds_and_trials_give_different_proposals(engine: Engine, tmp_path: Path) -> None:
    seen = {
        json.dumps(ask(engine, fresh(tmp_path, f"{seed}-{trial}"), seed=seed, trial=trial).data["values"])
        for seed in range(3)
        for trial in range(5)
    }
    assert len(seen) == 15


@pytest.mark.soak
def test_a_session_that_is_done_again_goes_on_exactly(engine: Engine, tmp_path: Path) -> None:
    """As after a kill: the same request comes again, in a fresh workspace, and the chain continues unchanged."""
    told: list[Mapping[str, Any]] = []
    steady = disturbed = None
    for number in range(30):
        directory = fresh(tmp_path, f"steady{number}")
        one = ask(engine, directory, steady, feedback=told)
        for name in ("lost", "again"):
            other = ask(engine, fresh(tmp_path, f"{name}{number}"), disturbed, feedback=told)
        assert (one.data, one.resume) == (other.data, other.resume)
        steady, disturbed = one.resume, other.resume
        told = [feedback(one, math.sin(number))]


def test_workers_may_ask_at_once_and_tell_in_batches(engine: Engine, tmp_path: Path) -> None:
    """One told result after the other, or all of a generation in one request: what is learned is the same."""
    sessions = [ask(engine, fresh(tmp_path, f"w{trial}"), trial=trial) for trial in range(12)]
    assert len({json.dumps(each.data["proposal"]["places"]) for each in sessions}) == 12
    results = [feedback(each, float(number)) for number, each in enumerate(sessions)]
    batch = ask(engine, fresh(tmp_path, "batch"), sessions[0].resume, feedback=results, trial=99)
    resume = sessions[0].resume
    for number, each in enumerate(results):
        resume = ask(engine, fresh(tmp_path, f"single{number}"), resume, feedback=[each], trial=50).resume
    single = ask(engine, fresh(tmp_path, "single"), resume, trial=99)
    assert batch.data == single.data
    assert batch.data["proposal"]["generation"] == 1


def test_what_is_told_twice_or_too_late_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    sessions = [ask(engine, fresh(tmp_path, f"w{trial}"), trial=trial) for trial in range(8)]
    results = [feedback(each, float(number)) for number, each in enumerate(sessions)]
    once = ask(engine, fresh(tmp_path, "once"), None, feedback=results[:5], trial=99)
    twice = ask(engine, fresh(tmp_path, "twice"), None, feedback=[*results[:5], *results[:5]], trial=99)
    assert once.resume == twice.resume
    following = ask(engine, fresh(tmp_path, "next"), once.resume, feedback=results[5:], trial=99)
    late = ask(engine, fresh(tmp_path, "late"), following.resume, feedback=results, trial=99)
    assert following.data["proposal"]["generation"] == 1
    assert late.resume == following.resume


def feedback(session: Session, score: float | None) -> dict[str, Any]:
    return {"proposal": session.data["proposal"], "score": score}


@pytest.mark.parametrize(
    "resume", ["0193d4c5-0000-7000-8000-000000000000", "../../etc/passwd", "", "search-1.x.y"]
)
def test_a_state_that_is_none_is_refused(engine: Engine, tmp_path: Path, resume: str) -> None:
    path = program(tmp_path)
    with pytest.raises(SessionFailed) as raised:
        ask(engine, tmp_path, resume)
    assert (raised.value.failure, raised.value.worked) == (Failure.REFUSED, False)
    assert path.read_text() == PROGRAM


def test_a_damaged_state_is_refused(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path)
    resume = ask(engine, tmp_path).resume
    assert resume is not None
    for place in (10, 30, 100, len(resume) - 3):
        changed = "A" if resume[place] != "A" else "B"
        with pytest.raises(SessionFailed, match="damaged"):
            ask(engine, tmp_path, resume[:place] + changed + resume[place + 1 :])


def test_a_state_of_other_constants_is_refused(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path)
    session = ask(engine, tmp_path)
    program(tmp_path, PROGRAM.replace("1..8", "1..9"))
    with pytest.raises(SessionFailed, match="declares other constants"):
        ask(engine, tmp_path, session.resume)
    with pytest.raises(Misuse, match="feedback 0 cannot be used: it was made for other constants"):
        ask(engine, tmp_path, feedback=[feedback(session, 1.0)])


def test_other_lines_around_the_constants_do_not_matter(engine: Engine, tmp_path: Path) -> None:
    path = program(tmp_path)
    session = ask(engine, tmp_path)
    path.write_text("# a new first line\n" + path.read_text() + "\ndef more(): pass\n")
    assert ask(engine, tmp_path, session.resume).data["proposal"]["trial"] == 1


def test_trials_that_all_fail_teach_nothing_and_break_nothing(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path)
    resume, told = None, []
    for _ in range(60):
        session = ask(engine, tmp_path, resume, feedback=told)
        resume, told = session.resume, [feedback(session, None)]
    assert session.data["proposal"]["generation"] > 3


@pytest.mark.soak
def test_the_state_does_not_grow(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path)
    resume, told, sizes = None, [], []
    for number in range(200):
        session = ask(engine, tmp_path, resume, feedback=told)
        assert session.resume is not None
        resume, told = session.resume, [feedback(session, math.sin(number))]
        sizes.append(len(resume))
    assert max(sizes[150:]) < 1.2 * max(sizes[30:80])
    assert max(sizes) < 4_000


LANDSCAPE = """\
X = {x}  # search: -2.0..2.0
Y = {y}  # search: -2.0..2.0
RATE = 0.5  # search: 0.0001..1.0 log
DEPTH = 11  # search: 1..12
KERNEL = "linear"  # search: "rbf" | "linear" | "poly"
"""


def loss(found: Mapping[str, Any]) -> float:
    """A curved valley (Rosenbrock) with a rate, a depth, and a kernel that looks best only where the rest is bad."""
    x, y = found["X"], found["Y"]
    valley = 10 * (y - x * x) ** 2 + (1 - x) ** 2
    rest = (math.log10(found["RATE"]) + 2) ** 2 + 0.3 * abs(found["DEPTH"] - 4)
    trap = {"rbf": 0.0, "poly": 0.7, "linear": 2.0 - min(2.0, 0.4 * (valley + rest))}[found["KERNEL"]]
    return valley + rest + float(trap)


def search_loss(engine: Engine, directory: Path, seed: int, budget: int) -> float:
    path = program(directory, LANDSCAPE.format(x=-1.5, y=1.5))
    best, resume, told = loss(values(path)), None, []
    for _ in range(budget):
        session = ask(engine, directory, resume, feedback=told, goal="min", seed=seed)
        score = loss(values(path))
        best, resume, told = min(best, score), session.resume, [feedback(session, score)]
    return best


def random_loss(seed: int, budget: int) -> float:
    chance = random.Random(seed)
    return min(
        loss(
            {
                "X": chance.uniform(-2, 2),
                "Y": chance.uniform(-2, 2),
                "RATE": 10 ** chance.uniform(-4, 0),
                "DEPTH": chance.randint(1, 12),
                "KERNEL": chance.choice(["rbf", "linear", "poly"]),
            }
        )
        for _ in range(budget)
    )


@pytest.mark.soak
def test_it_finds_far_better_values_than_chance_with_the_same_budget(engine: Engine, tmp_path: Path) -> None:
    budget = 300
    found = [search_loss(engine, tmp_path / str(seed), seed, budget) for seed in range(3)]
    by_chance = [random_loss(seed, budget) for seed in range(3)]
    assert statistics.median(found) < statistics.median(by_chance) / 10
    assert max(found) < statistics.median(by_chance)


@pytest.mark.soak
def test_the_goal_decides_where_it_goes(engine: Engine, tmp_path: Path) -> None:
    ends = {}
    for goal in ("max", "min"):
        path = program(tmp_path / goal, "A = 0.5  # search: 0.0..1.0\n")
        resume, told = None, []
        for _ in range(60):
            session = ask(engine, path.parent, resume, feedback=told, goal=goal)
            resume, told = session.resume, [feedback(session, values(path)["A"])]
        ends[goal] = values(path)["A"]
    assert (ends["max"] > 0.9, ends["min"] < 0.1) == (True, True)


def test_a_search_that_has_settled_begins_anew_elsewhere() -> None:
    space = Space.of(find_constants("m.py", "A = 0.5  # search: 0.0..1.0\n"))
    state, trial = SearchState.begin(space, 1), 0
    while state.restarts == 0:
        point = state.draw(space, trial)
        state = state.tell(space, state.generation, SearchTrial(trial, point, -abs(point.places[0] - 0.3)))
        trial += 1
        assert trial < 2_000
    assert state.distribution.population > SearchState.begin(space, 1).distribution.population
    assert SearchState.decode(state.encode(), space) == state


_declarations = st.one_of(
    st.tuples(st.floats(-1e6, 1e6), st.floats(0.001, 1e6)).map(
        lambda at: f"{at[0]!r}  # search: {at[0]!r}..{at[0] + at[1]!r}"
    ),
    st.tuples(st.integers(-500, 500), st.integers(1, 300)).map(
        lambda at: f"{at[0]}  # search: {at[0]}..{at[0] + at[1]}"
    ),
    st.floats(1e-6, 1e3).map(lambda low: f"{low!r}  # search: {low!r}..{low * 1e4!r} log"),
    st.integers(2, 9).map(lambda count: "0  # search: " + " | ".join(map(str, range(count)))),
)


@pytest.mark.soak
@given(st.lists(_declarations, min_size=1, max_size=8), st.integers(0, 1000))
def test_every_draw_is_what_the_program_allows(declarations: list[str], trial: int) -> None:
    text = "".join(f"A{number} = {each}\n" for number, each in enumerate(declarations))
    constants = find_constants("m.py", text)
    space = Space.of(constants)
    state = SearchState.begin(space, 0)
    points = [
        state.draw(space, trial),
        SearchPoint(tuple(-7.0 for _ in space.present.places), space.present.options),
    ]
    for point in points:
        for constant, literal in zip(constants, space.literals(point), strict=True):
            value, domain = ast.literal_eval(literal), constant.domain
            assert type(value) is type(constant.present)
            assert value in domain.values if hasattr(domain, "values") else domain.low <= value <= domain.high
    assert SearchState.decode(state.encode(), space) == state


def test_the_deadline_ends_it(engine: Engine, tmp_path: Path) -> None:
    path = program(tmp_path)
    with pytest.raises(SessionFailed) as raised:
        asyncio.run(engine.propose(Request("", workspace=tmp_path, deadline_seconds=-1.0)))
    assert raised.value.failure is Failure.TIMEOUT
    assert path.read_text() == PROGRAM


def test_after_a_cancellation_nothing_is_written(engine: Engine, tmp_path: Path) -> None:
    for number in range(2_000):
        program(tmp_path, "A = 1\n", f"part{number // 100}/file{number}.py")
    path = program(tmp_path, name="zzz.py")

    async def run() -> bool:
        task = asyncio.create_task(engine.propose(Request("", workspace=tmp_path)))
        await asyncio.sleep(0.005)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False

    cancelled = asyncio.run(run())
    content = path.read_text()
    time.sleep(0.2)
    assert path.read_text() == content
    assert content == PROGRAM or not cancelled


def test_a_search_in_a_program_that_others_change_begins_again(engine: Engine, tmp_path: Path) -> None:
    program(tmp_path)
    session = ask(engine, tmp_path)
    program(tmp_path, PROGRAM.replace("1..8", "1..9"))
    again = ask(engine, tmp_path, session.resume, feedback=[feedback(session, 1.0)], moving=True)
    assert again.data["proposal"]["signature"] != session.data["proposal"]["signature"]
    assert again.data["proposal"]["generation"] == 0


@pytest.mark.parametrize("text", ["A = 1\n", "A = 9  # search: 1..8\n", "A = (\n"])
def test_a_program_of_others_that_cannot_be_searched_ends_only_the_session(
    engine: Engine, tmp_path: Path, text: str
) -> None:
    program(tmp_path, text)
    with pytest.raises(SessionFailed, match="nothing can be searched") as raised:
        ask(engine, tmp_path, moving=True)
    assert not raised.value.failure.is_hopeless


def test_constants_that_nobody_declared_keep_the_range_their_search_began_with(tmp_path: Path) -> None:
    engine = SearchEngine("all")
    path = program(tmp_path, "RATE = 0.5\nDEPTH = 8\n")
    session = ask(engine, tmp_path)
    signature = session.data["proposal"]["signature"]
    for _ in range(20):
        told = [feedback(session, 1.0)]
        session = ask(engine, tmp_path, session.resume, feedback=told, moving=True)
        assert session.data["proposal"]["signature"] == signature
    path.write_text("RATE = 80.0\nDEPTH = 8\n")
    session = ask(engine, tmp_path, session.resume, moving=True)
    assert session.data["proposal"]["signature"] != signature
