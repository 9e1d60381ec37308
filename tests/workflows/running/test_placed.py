"""A workflow whose steps are placed comes to what it comes to here, once, whatever becomes of nodes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.flowkit.spec import WorkflowSpec
from ratchet.ledger import Ledger
from ratchet.ledger.tables import tool_calls
from ratchet.runtime import Runtime
from tests.research.test_placed_runs import kill_one, nodes_of
from tests.runtime.fleet import Fleet
from tests.waiting import eventually
from tests.workflows.running.settled import settle, start
from tests.workflows.running.tools import python, workflow

SLOWLY = "import time\ndef run(number):\n    time.sleep(0.05)\n    return number + 1\n"
SUM = "def run(**given):\n    return sum(given.values())\n"


def fan(width: int) -> WorkflowSpec:
    """So many steps, and one that adds up what they came to."""
    steps = [python(f"s{number}", "slowly", input_mapping={"number": number}) for number in range(width)]
    given = {f"n{number}": f"steps.s{number}.output" for number in range(width)}
    return workflow(
        "fan", *steps, python("sum", "sum", input_mapping=given), tools={"slowly": SLOWLY, "sum": SUM}
    )


def calls(ledger: Ledger, run_id: int) -> Counter[str]:
    """How many calls of each step are recorded."""
    wanted = sa.select(tool_calls.c.step).where(tool_calls.c.run_id == run_id)
    with ledger.read() as tx:
        return Counter(tx.connection.execute(wanted).scalars())


@pytest.mark.parametrize("width", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_placed_steps_are_done_once_while_nodes_are_killed(
    width: int, runtime: Runtime, ledger: Ledger, fleet: Fleet, tmp_path: Path
) -> None:
    chance = random.Random(width)
    cache = str(tmp_path / "cache of nodes")
    run_id = start(runtime, fan(width), cached=False)
    worker = fleet.add(placement__kind="processes", placement__cache=cache, placement__nodes=2)
    eventually(lambda: kill_one(nodes_of(worker), chance))
    report = settle(ledger, run_id, seconds=240.0)
    assert (report["status"], report["outputs"]) == ("completed", {"sum": sum(range(1, width + 1))})
    made = calls(ledger, run_id)
    assert (len(made), set(made.values())) == (width + 1, {1})
    assert {step["tries"] for step in report["steps"].values()} == {1}
