"""Many threads in several processes change the same runs and steps at random, on both databases.

Afterwards the ledger must tell one story: each change that was reported happened once and in a legal order, none was
lost, none that was refused left a trace, and a reader that followed meanwhile saw every event once, in order.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ratchet.kernel import (
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    IllegalTransition,
    RunStatus,
    StateChanged,
    StepStatus,
)
from ratchet.ledger import Event, Ledger, change_run, change_step, follow
from ratchet.ledger import events as log
from ratchet.ledger.runs import create_run, create_steps, list_runs, list_steps
from tests.ledger.actors import acting, place_of

PROCESSES = 2
THREADS = 3
# At most this many seconds of examples on each database.
SECONDS = 20.0
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Move:
    """One call: change a thing to a status, expecting one of some, and then perhaps give the transaction up."""

    entity: str
    index: int
    to: str
    expected: tuple[str, ...] | None
    linger_ms: int
    give_up: bool


@dataclass(frozen=True, slots=True)
class Told:
    """What a call told its caller."""

    request_id: str
    move: Move
    previous: str | None
    refusal: str | None


class GivenUp(Exception):
    pass


def moves_of(entity: str, statuses: type[RunStatus] | type[StepStatus]) -> st.SearchStrategy[Move]:
    # Final ones are drawn less often, or every thing would be at its end after a moment.
    often = [str(status) for status in statuses if not status.final] * 4 + [
        str(status) for status in statuses
    ]
    some = st.lists(st.sampled_from([str(status) for status in statuses]), min_size=1, max_size=4)
    return st.builds(
        Move,
        st.just(entity),
        st.integers(0, 3),
        st.sampled_from(often),
        st.none() | some.map(tuple),
        st.sampled_from([0, 0, 0, 1, 3]),
        st.sampled_from([False] * 9 + [True]),
    )


moves = st.lists(moves_of("run", RunStatus) | moves_of("step", StepStatus), min_size=30, max_size=60)


def make(ledger: Ledger, name: str, number: int, move: Move, ids: dict[str, list[int]]) -> Told:
    request_id = f"{name}-{number}"
    key = ids[move.entity][move.index]
    previous = refusal = None
    try:
        with ledger.write(actor=name, request_id=request_id) as tx:
            if move.entity == "run":
                expected = None if move.expected is None else map(RunStatus, move.expected)
                previous = str(change_run(tx, key, RunStatus(move.to), expected=expected))
            else:
                expected = None if move.expected is None else map(StepStatus, move.expected)
                previous = str(change_step(tx, key, StepStatus(move.to), expected=expected))
            # Numbers must follow commits, whoever takes longer between the change and the end.
            time.sleep(move.linger_ms / 1000)
            if move.give_up:
                raise GivenUp
    except (IllegalTransition, StateChanged, GivenUp) as error:
        refusal = type(error).__name__
    return Told(request_id, move, previous, refusal)


def play(ledger: Ledger, name: str, moves: list[Move], ids: dict[str, list[int]]) -> list[Told]:
    """Make the moves from several threads, shuffled."""
    random.Random(name).shuffle(moves)
    told: list[Told] = []

    def some(thread: int) -> None:
        numbers = range(thread, len(moves), THREADS)
        told.extend(make(ledger, name, number, moves[number], ids) for number in numbers)

    threads = [threading.Thread(target=some, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def player(pipe: Connection, url: str, artifacts: Path) -> None:
    with Ledger.open(url, artifacts) as ledger:
        while True:
            name, moves, ids = pipe.recv()
            pipe.send(play(ledger, name, moves, ids))


@contextlib.contextmanager
def followed(ledger: Ledger, after: int) -> Iterator[list[Event]]:
    """What a follower sees from `after` until the event `done` comes."""
    seen: list[Event] = []

    def watch() -> None:
        for event in follow(ledger, after):
            seen.append(event)
            if event.type == "done":
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield seen
    with ledger.write() as tx:
        tx.event("done")
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the follower never saw the last event"


@pytest.mark.soak
@pytest.mark.timeout(200)
def test_many_threads_and_processes_leave_only_legal_stories(ledger: Ledger) -> None:
    started = time.monotonic()
    seen: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        pipes = [stack.enter_context(acting(player, *place_of(ledger)))[1] for _ in range(PROCESSES)]

        # Not shrunk and not replayed: another try would interleave otherwise.
        @settings(
            max_examples=10,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(moves, min_size=PROCESSES + 1, max_size=PROCESSES + 1))
        def examples(sets: list[list[Move]]) -> None:
            if time.monotonic() - started < SECONDS:
                seen.update(one_example(ledger, pipes, sets))

        examples()
    # The examples were worth something: every kind of answer came.
    assert set(seen) == {"changed", "IllegalTransition", "StateChanged", "GivenUp"}


def one_example(ledger: Ledger, pipes: list[Connection], sets: list[list[Move]]) -> Counter[str]:
    with ledger.write() as tx:
        runs = [create_run(tx, "demo", f"run {number}") for number in range(4)]
        ids = {"run": list(runs), "step": list(create_steps(tx, runs[0], [(str(n), {}) for n in range(4)]))}
    with ledger.read() as tx:
        beginning = log.last_id(tx.connection)
    with followed(ledger, beginning) as seen:
        for number, pipe in enumerate(pipes):
            pipe.send((f"process-{beginning}-{number}", sets[number], ids))
        told = play(ledger, f"here-{beginning}", sets[-1], ids)
        for pipe in pipes:
            assert pipe.poll(PATIENCE), "a process did not finish"
            told += pipe.recv()
    with ledger.read() as tx:
        happened = log.since(tx.connection, beginning, limit=10_000)
        present = {("run", run.id): str(run.status) for run in list_runs(tx) if run.id in ids["run"]}
        present |= {("step", step.id): str(step.status) for step in list_steps(tx, runs[0])}
    check_follower(seen, happened)
    check_calls(told, happened, ids)
    check_stories(happened, present)
    return Counter(each.refusal or "changed" for each in told)


def check_follower(seen: list[Event], happened: list[Event]) -> None:
    numbers = [event.id for event in happened]
    assert numbers == sorted(set(numbers))
    assert seen == happened, "the follower saw something else than what happened"


def check_calls(told: list[Told], happened: list[Event], ids: dict[str, list[int]]) -> None:
    by_request: defaultdict[str | None, list[Event]] = defaultdict(list)
    for event in happened:
        by_request[event.request_id].append(event)
    for each in told:
        found = by_request[each.request_id]
        if each.refusal is not None:
            assert found == [], f"a refused call left a trace: {each}"
            continue
        assert len(found) == 1, f"a change has {len(found)} events: {each}"
        [event] = found
        key = ids[each.move.entity][each.move.index]
        assert (event.step_id if each.move.entity == "step" else event.run_id) == key
        assert (event.type, event.data["from"]) == (f"{each.move.entity}.{each.move.to}", each.previous)
        assert each.move.expected is None or each.previous in each.move.expected
    assert sum(each.refusal is None for each in told) == len(happened) - 1, (
        "there are events that nobody made"
    )


def check_stories(happened: list[Event], present: dict[tuple[str, int], str]) -> None:
    stories: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in happened:
        if event.step_id is not None:
            stories["step", event.step_id].append(event)
        elif event.run_id is not None:
            stories["run", event.run_id].append(event)
    for thing, status in present.items():
        current = "pending"
        for event in stories[thing]:
            assert event.data["from"] == current, f"{thing} jumped from {current}: {event}"
            legal = (
                RUN_TRANSITIONS[RunStatus(current)]
                if thing[0] == "run"
                else STEP_TRANSITIONS[StepStatus(current)]
            )
            assert event.data["to"] in legal, f"{thing} went from {current} to {event.data['to']}"
            current = event.data["to"]
        assert current == status, f"{thing} is {status}, but its story ends at {current}"
