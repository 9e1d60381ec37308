"""A worker that is killed in the middle of a workflow: what had finished is not run again, and nothing is left over."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from ratchet.flowkit.execution import MOST_AHEAD
from ratchet.flowkit.spec import Repeat
from ratchet.kernel import StepStatus
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger import events as log
from ratchet.ledger.runs import get_run, list_attempts, list_steps
from ratchet.runtime import Runtime
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import marks
from tests.waiting import eventually
from tests.workflows.running.settled import settle, start
from tests.workflows.running.tools import DOUBLE, function, python, workflow


def names(file: Path) -> Counter[str]:
    return Counter(line.partition(":")[0] for line in marks(file))


def test_finished_steps_are_not_run_again_after_a_kill(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    given = {"file": str(file)}
    spec = workflow(
        "survives",
        function("before", "mark", input_mapping={**given, "name": "before", "value": 1}),
        python("node", "double", input_mapping={"number": "steps.before.output"}),
        function("dies", "mark_and_die", depends_on=("node",), input_mapping={**given, "name": "dies"}),
        function(
            "after",
            "mark",
            depends_on=("dies",),
            input_mapping={**given, "name": "after", "value": "steps.node.output"},
        ),
        tools={"double": DOUBLE},
    )
    fleet.add()
    run_id = start(runtime, spec)
    eventually(lambda: names(file)["dies"] == 1)
    fleet.add()
    done = settle(ledger, run_id)
    assert (done["status"], done["outputs"]) == ("completed", {"after": 2})
    assert names(file) == {"before": 1, "dies": 2, "after": 1}
    with ledger.read() as tx:
        steps = {step.name: step for step in list_steps(tx, run_id)}
        tries = {
            name: [str(each.outcome) for each in list_attempts(tx, step.id)] for name, step in steps.items()
        }
    assert {step.status for step in steps.values()} == {StepStatus.COMPLETED}
    assert tries == {
        "before": ["passed"],
        "node": ["passed"],
        "dies": ["error", "passed"],
        "after": ["passed"],
    }


def test_a_loop_resumes_at_the_round_in_which_its_worker_was_killed(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    spec = workflow(
        "loops",
        function(
            "again",
            "mark_or_die",
            input_mapping={"file": str(file), "last": "last", "dies_at": 2},
            repeat=Repeat("last >= 4", 9),
        ),
    )
    fleet.add()
    run_id = start(runtime, spec)
    eventually(lambda: names(file)["2"] == 1)
    fleet.add()
    done = settle(ledger, run_id)

    assert (done["status"], done["outputs"]) == ("completed", {"again": 4})
    assert names(file) == {"0": 1, "1": 1, "2": 2, "3": 1}
    assert set(done["steps"]) == {"again", *(f"again[{number}]" for number in range(4))}


@pytest.mark.soak
@pytest.mark.soak
def test_lines_that_were_done_are_not_done_again_after_a_kill(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    """The step that speaks is run again, says the same lines, and only the line that had not ended is done again."""
    file = tmp_path / "marks"
    given = {"file": str(file)}
    spec = workflow(
        "talk",
        function("say", "speak", stream=True, input_mapping={**given, "lines": ["a", "b", "c"]}),
        function(
            "hear",
            "mark_and_die",
            for_each="steps.say.output",
            input_mapping={**given, "name": "item", "only": "b"},
        ),
    )
    fleet.add()
    run_id = start(runtime, spec)
    eventually(lambda: names(file)["b"] == 1)
    fleet.add()
    done = settle(ledger, run_id)
    assert (done["status"], done["outputs"]) == ("completed", {"hear": ["a", "b", "c"]})
    assert names(file) == {"a": 1, "b": 2, "c": 1}
    with ledger.read() as tx:
        said = next(step for step in list_steps(tx, run_id) if step.name == "say")
        assert [str(each.outcome) for each in list_attempts(tx, said.id)] == ["error", "passed"]


def test_items_of_a_list_and_steps_inside_are_remembered_too(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    spec = workflow(
        "lists",
        function(
            "each",
            "mark",
            for_each=["a", "b", "c"],
            input_mapping={"file": str(file), "name": "item", "value": "item"},
        ),
        function(
            "dies", "mark_and_die", input_mapping={"file": str(file), "name": "dies"}, depends_on=("each",)
        ),
    )
    fleet.add()
    run_id = start(runtime, spec)
    eventually(lambda: names(file)["dies"] == 1)
    fleet.add()
    assert settle(ledger, run_id)["status"] == "completed"
    assert names(file) == {"a": 1, "b": 1, "c": 1, "dies": 2}


@pytest.mark.soak
def test_a_workflow_runs_across_two_workers_each_step_once(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    one = {"runtime.slots": 1, "workflows.concurrency": 1}
    first = fleet.add(**one)
    second = fleet.add(**one)
    spec = workflow(
        "spreads",
        *(
            function(
                f"s{n}", "mark_slowly", input_mapping={"file": str(file), "name": f"s{n}", "seconds": 0.3}
            )
            for n in range(8)
        ),
    )
    run_id = start(runtime, spec, spread=True)
    done = settle(ledger, run_id)
    assert (done["status"], len(done["outputs"])) == ("completed", 8)
    assert names(file) == {f"s{n}": 1 for n in range(8)}
    by = {int(line.partition(":")[2]) for line in marks(file)}
    assert by == {first, second}


@pytest.mark.soak
def test_a_killed_carrier_finds_what_others_did_for_it(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    one = {"runtime.slots": 1, "workflows.concurrency": 1}
    spec = workflow(
        "spreads",
        function("dies", "mark_and_die", input_mapping={"file": str(file), "name": "dies"}),
        *(
            function(f"s{n}", "mark", input_mapping={"file": str(file), "name": f"s{n}", "value": n})
            for n in range(4)
        ),
    )
    run_id = start(runtime, spec, spread=True)
    fleet.add(**one)
    eventually(lambda: names(file)["dies"] == 1)
    fleet.add(**one)
    fleet.add(**one)
    done = settle(ledger, run_id)
    assert done["status"] == "completed"
    assert names(file) == {"dies": 2, "s0": 1, "s1": 1, "s2": 1, "s3": 1}


@pytest.mark.soak
def test_a_storm_of_kills_loses_nothing_and_finishes_every_step_once(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    chance = random.Random(6)
    spec = workflow(
        "storm",
        *(
            function(
                f"s{n}",
                "mark_slowly",
                input_mapping={"file": str(file), "name": f"s{n}", "seconds": 0.05},
                depends_on=(f"s{n - 3}",) if n >= 3 else (),
            )
            for n in range(30)
        ),
        python("last", "double", input_mapping={"number": 21}, depends_on=("s29",)),
        tools={"double": DOUBLE},
    )
    run_id = start(runtime, spec)
    for _ in range(4):
        pid = fleet.add()
        wait_for_marks(ledger, run_id, file, len(marks(file)) + chance.randrange(1, 8))
        os.kill(pid, signal.SIGKILL)
    fleet.add()
    done = settle(ledger, run_id)
    assert done["status"] == "completed"
    assert done["steps"]["last"]["value"] == 42
    with ledger.read() as tx:
        outcomes = [
            [str(each.outcome) for each in list_attempts(tx, step.id)] for step in list_steps(tx, run_id)
        ]
    # Only a try that was cut off is followed by another one.
    assert len(outcomes) == 31
    assert all(each == ["error"] * (len(each) - 1) + ["passed"] for each in outcomes)


def wait_for_marks(ledger: Ledger, run_id: int, file: Path, least: int) -> None:
    """Until so many calls were made, or the run has ended before."""

    def enough() -> bool:
        with ledger.read() as tx:
            return len(marks(file)) >= least or get_run(tx, run_id).status.stands

    eventually(enough)


@pytest.mark.soak
def test_a_step_that_streams_waits_for_the_next_one_also_where_they_share_one_place(
    runtime: Runtime, ledger: Ledger, fleet: Fleet
) -> None:
    """How far it is ahead is what it had said of itself before each line was done."""
    lines, wide = 700, 1_400
    rows = f"""
import sys
def run():
    for number in range({lines}):
        print(number, file=sys.stderr, flush=True)
        yield [number, "x" * {wide}]
"""
    spec = workflow(
        "flood",
        python("rows", "rows", stream=True),
        python("first", "first", for_each="steps.rows.output", input_mapping={"pair": "item"}),
        tools={"rows": rows, "first": "def run(pair):\n    return pair[0]\n"},
    )
    run_id = start(runtime, spec)
    fleet.add(**{"runtime.slots": 1, "workflows.concurrency": 1})
    assert settle(ledger, run_id, 300.0)["outputs"] == {"first": list(range(lines))}
    with ledger.read() as tx:
        names = {step.id: step.name for step in list_steps(tx, run_id)}
        events = [*log.since(tx.connection, where=EventFilter(run_id=run_id), limit=100_000)]
    said, done, ahead = "", 0, []
    for event in events:
        if event.type == "step.output":
            said += event.data["text"]
        elif event.type == "step.completed" and names[event.step_id].startswith("first["):
            done += 1
        ahead.append(len(said.splitlines()) - done)
    in_the_pipe = 2 * 64 * 1024 // wide
    assert (len(said.splitlines()), done) == (lines, lines)
    assert max(ahead) <= MOST_AHEAD + in_the_pipe + 8
