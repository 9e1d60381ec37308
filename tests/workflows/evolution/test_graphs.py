"""A workflow that is a tool is rewritten as a whole: its graph, within what it calls already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.flowkit.spec import StepType, WorkflowStep
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Misuse
from ratchet.ledger import Ledger
from ratchet.ledger.tools import (
    CallRow,
    Source,
    ToolVersionStatus,
    add_tool,
    add_version,
    calls_of_tool,
    get_tool,
    promote_version,
    record_calls,
)
from ratchet.runtime import Runtime
from ratchet.tools.definition import Tool, read_tool
from ratchet.workflows.evolution import evolve_tool
from ratchet.workflows.evolution.graph import GRAPH
from ratchet.workflows.evolution.parts import UnusableVariant, parts_of, same_parts, with_parts
from tests.workflows.evolution.graphs import CHAIN, graph
from tests.workflows.evolution.lab import completed, current, put_tool, settled, versions
from tests.workflows.evolution.rewriter import prompts
from tests.workflows.running.settled import run as run_here
from tests.workflows.running.tools import function, workflow

NAME = "sum-of-two"


def tool(spec: object = CHAIN, **more: object) -> Tool:
    told = {"type": "workflow", "description": "Adds up.", "workflow": {"spec": write_spec(spec)}, **more}  # type: ignore[arg-type]
    return read_tool(told, folder=None, id=NAME)


@pytest.mark.parametrize(
    ("variant", "why"),
    [
        ("asks a model", "a question to a model"),
        ("asks a person", "an answer of a person"),
        ("another tool", "the tool word_count"),
        ("a file", "the file more.py"),
        ("tools of its own", "its tool_definitions must stay as it is"),
        ("other outputs", "its outputs must have the names"),
    ],
)
def test_a_graph_reaches_for_nothing_that_it_did_not_use_before(variant: str, why: str) -> None:
    with pytest.raises(UnusableVariant, match=why):
        with_parts(tool(), {GRAPH: graph(variant)})


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"workflow_id": "sum-of-two", "steps": []}'])
def test_what_is_no_workflow_is_no_variant(text: str) -> None:
    with pytest.raises(UnusableVariant, match=GRAPH):
        with_parts(tool(), {GRAPH: text})


def test_layout_is_no_change_and_order_is() -> None:
    parts = parts_of(tool())
    assert same_parts(parts, {GRAPH: json.dumps(json.loads(parts[GRAPH]))})
    assert not same_parts(parts, {GRAPH: graph("at once")})
    faster = with_parts(tool(), {GRAPH: graph("at once")})
    assert faster.workflow is not None
    assert [each.get("depends_on") for each in faster.workflow.spec["steps"]] == [None, None, None]


def put(ledger: Ledger, made: Tool) -> None:
    with ledger.write() as tx:
        row = add_tool(tx, NAME, Source("tests"))
        promote_version(tx, row, add_version(tx, row, made.data, made.hash), expected=None)


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_steps_that_need_not_wait_run_at_once_and_wrong_graphs_are_refused(
    runtime: Runtime, ledger: Ledger, tmp_path: Path
) -> None:
    put(ledger, tool())
    outer = workflow("outer", *(function(f"call{n}", NAME, input_mapping={"number": n}) for n in (3, 4)))
    assert run_here(runtime, outer)["outputs"] == {"call3": {"sum": 12}, "call4": {"sum": 16}}
    with ledger.read() as tx:
        used = len(calls_of_tool(tx, get_tool(tx, NAME).id))

    engine = "rewriter:graph/same,graph/another tool,graph/leaves one out,graph/at once"
    done = completed(ledger, evolve_tool(runtime, NAME, engine=engine, actor="test"))

    assert done.result["promoted"], done.result
    assert [each.status for each in versions(ledger, NAME)] == [
        ToolVersionStatus.PROMOTED,
        ToolVersionStatus.REFUSED,
        ToolVersionStatus.PROMOTED,
    ]
    assert "time" in (current(ledger, NAME).reason or "")
    asked = prompts(tmp_path)
    assert "critical path: first → second → sum" in asked[0]
    assert "it may not use the tool word_count" in asked[2]
    # What was tried is no use of the tools.
    with ledger.read() as tx:
        assert len(calls_of_tool(tx, get_tool(tx, NAME).id)) == used
    assert run_here(runtime, outer)["outputs"] == {"call3": {"sum": 12}, "call4": {"sum": 16}}


def test_a_workflow_that_asks_a_person_is_not_rewritten() -> None:
    asking = workflow(NAME, WorkflowStep("ask", StepType.APPROVAL, description="Well?"))
    with pytest.raises(Misuse, match="asks a person"):
        parts_of(tool(asking))


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_workflow_that_reaches_the_network_is_not_tried(runtime: Runtime, ledger: Ledger) -> None:
    with ledger.write() as tx:
        put_tool(tx, "fetch", network=True)
    put(ledger, tool(workflow(NAME, function("get", "fetch", input_mapping={"n": 1}))))
    with ledger.write() as tx:
        row = get_tool(tx, NAME)
        record_calls(tx, [CallRow(row.id, row.current_id or 0, True, 5.0, tx.now, input={}, output={})])
    ended = settled(ledger, evolve_tool(runtime, NAME, engine="rewriter:graph/at once", actor="test"))
    assert "it calls fetch, which uses the network" in (ended.reason or "")
