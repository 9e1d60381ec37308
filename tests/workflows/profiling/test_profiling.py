"""Profiles of real runs."""

from __future__ import annotations

import pytest

from ratchet.flowkit.spec import WorkflowInput, WorkflowOutput, WorkflowSpec
from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import Ledger
from ratchet.ledger.runs import create_run
from ratchet.runtime import Runtime
from ratchet.workflows.profile import profile_run, profile_workflow
from tests.workflows.running.settled import run
from tests.workflows.running.tools import ADD, DOUBLE, python, workflow

pytestmark = [pytest.mark.usefixtures("worker"), pytest.mark.parametrize("url", ["sqlite"], indirect=True)]

# Some thirty times the work of the other tools, also where starting a process takes long.
BUSY = "def run(number):\n    for _ in range(20_000_000):\n        pass\n    return number\n"


def busy() -> WorkflowSpec:
    """Two ways from the first step to the last, one of which takes long."""
    return workflow(
        "busy",
        python("first", "double", input_mapping={"number": "inputs.number"}),
        python("quick", "double", input_mapping={"number": "steps.first.output"}),
        python("slow", "work", input_mapping={"number": "steps.first.output"}),
        python("last", "add", input_mapping={"a": "steps.quick.output", "b": "steps.slow.output"}),
        tools={"double": DOUBLE, "add": ADD, "work": BUSY},
        inputs=(WorkflowInput("number", "number"),),
        outputs=(WorkflowOutput("sum", "number", source_reference="steps.last.output"),),
    )


@pytest.mark.soak
def test_a_profile_shows_the_critical_path_and_what_to_evolve_next(runtime: Runtime, ledger: Ledger) -> None:
    done = run(runtime, busy(), {"number": 1})
    with ledger.read() as tx:
        profile = profile_run(tx, done["run_id"])
    assert profile.critical_path == ("first", "slow", "last")
    assert profile.path_ms <= profile.wall_ms
    steps = {each.step: each for each in profile.steps}
    assert steps["slow"].path_share > 0.5 > steps["quick"].time_share
    assert steps["quick"].path_share == 0.0
    assert (steps["slow"].cpu_ms or 0) > 3 * (steps["first"].cpu_ms or 0)
    assert steps["slow"].peak_bytes
    assert profile.evolve_next is not None
    assert (profile.evolve_next.tool, profile.evolve_next.folder) == ("work", "workflow:busy")
    assert "of the critical path" in profile.evolve_next.why


@pytest.mark.soak
def test_a_profile_of_a_workflow_is_a_mean_over_its_last_runs(runtime: Runtime, ledger: Ledger) -> None:
    first = run(runtime, busy(), {"number": 1})["run_id"]
    second = run(runtime, busy(), {"number": 1})["run_id"]
    with ledger.read() as tx:
        both = profile_workflow(tx, "busy")
        last = profile_workflow(tx, "busy", last=1)
    assert (both.runs, last.runs) == ((second, first), (second,))
    # The second run took everything from the cache.
    assert {each.cached for each in both.steps} == {0.5}
    assert {each.cached for each in last.steps} == {1.0}
    assert last.path_ms == 0.0 < both.path_ms


@pytest.mark.soak
def test_what_is_no_run_of_a_workflow_has_no_profile(runtime: Runtime, ledger: Ledger) -> None:
    with ledger.write() as tx:
        other = create_run(tx, "workflow", "evolve:x", spec={"tool": "x"})
    with ledger.read() as tx:
        with pytest.raises(Misuse, match="did not run a workflow"):
            profile_run(tx, other)
        with pytest.raises(NotFound, match="nothing"):
            profile_workflow(tx, "nothing")
