"""A workflow is taken over by a machine that shares its database and its artifact store, and no disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from ratchet.ledger.artifacts import INLINE_BYTES
from ratchet.runtime import open_ledger, open_runtime
from tests.runtime.machines import AddMachine
from tests.workflows.running.settled import settle, start
from tests.workflows.running.test_killed import names
from tests.workflows.running.tools import function, python, workflow

LARGE = "def run(text):\n    return text * 100_000\n"
MEASURE = "def run(text):\n    return len(text)\n"


def test_a_workflow_continues_where_its_first_home_was_never_seen(
    add_machine: AddMachine, tmp_path: Path
) -> None:
    first, second = add_machine("first"), add_machine("second")
    file = tmp_path / "marks"
    given = {"file": str(file)}
    spec = workflow(
        "moves",
        function("before", "mark", input_mapping={**given, "name": "before", "value": "x"}),
        python("large", "repeat", input_mapping={"text": "steps.before.output"}),
        function("dies", "mark_and_die", depends_on=("large",), input_mapping={**given, "name": "dies"}),
        python("measured", "measure", depends_on=("dies",), input_mapping={"text": "steps.large.output"}),
        tools={"repeat": LARGE, "measure": MEASURE},
    )
    with open_ledger(first.loaded) as ledger:
        run_id = start(open_runtime(first.loaded, ledger), spec)
    first.work_to_death()
    shutil.rmtree(first.home)
    second.work()
    with open_ledger(second.loaded) as ledger:
        done = settle(ledger, run_id)
        [kept] = ledger.artifacts.hashes()
        assert len(ledger.artifacts.read(kept)) > INLINE_BYTES
    assert (done["status"], done["outputs"]) == ("completed", {"measured": 100_000})
    assert names(file) == {"before": 1, "dies": 2}
