"""A run in the background gives its place to others between two steps, and continues where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger import events as log
from ratchet.runtime import Runtime
from tests.runtime.conftest import ended
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import marks
from tests.waiting import eventually
from tests.workflows.running.settled import settle, start
from tests.workflows.running.tools import function, python, workflow

# Long enough that it cannot end before it has noticed the other one.
_STEPS = 14


@pytest.mark.soak
def test_a_background_run_gives_way_and_repeats_nothing(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "marks"
    steps = [
        function(
            f"s{n}",
            "mark_slowly",
            input_mapping={"file": str(file), "name": f"s{n}", "seconds": 0.5},
            depends_on=(f"s{n - 1}",) if n else (),
        )
        for n in range(_STEPS)
    ]
    fleet.add(**{"runtime.slots": 1})
    run_id = start(runtime, workflow("quiet", *steps), background=True)
    eventually(lambda: len(marks(file)) >= 1)
    with ledger.write(actor="test") as tx:
        urgent = runtime.enqueue(tx, "note", {"file": str(tmp_path / "urgent"), "value": 1})
    assert ended(ledger, urgent).result == 1
    assert len(marks(file)) < _STEPS
    assert settle(ledger, run_id)["status"] == "completed"
    assert [line.partition(":")[0] for line in marks(file)] == [f"s{n}" for n in range(_STEPS)]
    with ledger.read() as tx:
        released = log.since(tx.connection, where=EventFilter(run_id=run_id, type="job.released"))
    assert len(released) >= 1


@pytest.mark.soak
def test_a_background_run_gives_way_while_a_step_waits_for_those_that_take_its_lines(
    runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    """The next one is let begin nothing more, so the step would wait for ever."""
    file = tmp_path / "marks"
    given = {"file": str(file), "name": "item", "seconds": 0.02}
    spec = workflow(
        "flood",
        python("rows", "rows", stream=True),
        function("slow", "mark_slowly", for_each="steps.rows.output", input_mapping=given),
        tools={
            "rows": "def run():\n    for number in range(600):\n        yield str(number) + 'x' * 1_500\n"
        },
    )
    fleet.add(**{"runtime.slots": 1, "workflows.concurrency": 1})
    run_id = start(runtime, spec, background=True)
    eventually(lambda: len(marks(file)) >= 1)
    with ledger.write(actor="test") as tx:
        urgent = runtime.enqueue(tx, "note", {"file": str(tmp_path / "urgent"), "value": 1})
    assert ended(ledger, urgent).result == 1
    assert len(marks(file)) < 600
    assert settle(ledger, run_id, 300.0)["status"] == "completed"
    assert len(marks(file)) == 600
