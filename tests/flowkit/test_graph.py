"""The order of steps, against a simple oracle."""

import itertools

import pytest
from hypothesis import given

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.graph import cycle_message, cycles, dependencies, levels, waves
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep

from . import fixtures
from .strategies import graphs

Graph = dict[str, set[str]]


def spec_of(graph: Graph) -> WorkflowSpec:
    return WorkflowSpec(
        "w", steps=tuple(WorkflowStep(name, depends_on=tuple(sorted(graph[name]))) for name in graph)
    )


def reachable(graph: Graph) -> dict[str, set[str]]:
    """What each step waits for in the end, found by repeating until nothing changes."""
    found = {name: set(others) for name, others in graph.items()}
    for _ in graph:
        for name in found:
            found[name] |= set().union(*(found[other] for other in found[name]))
    return found


@pytest.mark.soak
@given(graphs)
def test_waves_exist_exactly_when_no_step_waits_for_itself(graph: Graph) -> None:
    circular = any(name in behind for name, behind in reachable(graph).items())

    if circular:
        with pytest.raises(SpecError, match="circle"):
            waves(spec_of(graph))
    else:
        found = waves(spec_of(graph))
        turn = {name: number for number, wave in enumerate(found) for name in wave}
        assert turn.keys() == graph.keys()
        for name, others in graph.items():
            assert turn[name] == max((turn[other] + 1 for other in others), default=0)
        for wave in found:
            assert wave == [name for name in graph if name in wave]


@pytest.mark.soak
@given(graphs)
def test_a_cycle_is_found_exactly_when_there_is_one_and_each_step_of_it_waits_for_the_next(
    graph: Graph,
) -> None:
    found = next(cycles(dependencies(spec_of(graph))), None)

    assert (found is not None) == any(name in behind for name, behind in reachable(graph).items())
    if found is not None:
        assert found[0] == found[-1]
        assert len(set(found[:-1])) == len(found) - 1
        assert all(after in graph[before] for before, after in itertools.pairwise(found))


@pytest.mark.soak
@given(graphs)
def test_every_knot_of_circles_is_named(graph: Graph) -> None:
    behind = reachable(graph)
    knots = {
        frozenset({name} | {one for one in behind[name] if name in behind[one]})
        for name in graph
        if name in behind[name]
    }

    named = [set(cycle) for cycle in cycles(graph)]

    assert all(any(cycle <= knot for cycle in named) for knot in knots) or len(named) == 10


def test_edges_come_from_everything_that_a_step_refers_to() -> None:
    spec = read_spec(
        fixtures.small(
            {
                "step_id": "z",
                "depends_on": ["a"],
                "input_mapping": {"x": ["steps.b.output", {"y": "text ${steps.c.output.d}"}], "w": "item"},
                "prompt_template": "${steps.d.output} {x} steps.not.this",
                "when": "steps.e.output > 1 and inputs.f",
                "for_each": "steps.g.output",
            }
        )
    )

    assert dependencies(spec) == {"z": frozenset("abcdeg")}


def test_the_turns_of_a_workflow_with_braced_references() -> None:
    assert waves(read_spec(fixtures.braced())) == [["load"], ["count", "draw"], ["explain"]]


def test_steps_of_one_group_that_wait_for_nothing_run_in_one_turn() -> None:
    spec = read_spec(
        fixtures.small(
            {"step_id": "p", "parallel_group": 1},
            {"step_id": "x"},
            {"step_id": "q", "parallel_group": 1},
            {"step_id": "y", "parallel_group": 2},
        )
    )

    assert waves(spec) == [["p", "x", "q", "y"]]


def test_an_unknown_step_keeps_the_waves_from_being_made() -> None:
    with pytest.raises(SpecError, match="step a depends on ghost, which does not exist"):
        waves(spec_of({"a": {"ghost"}, "b": set()}))


def test_long_chains_and_long_circles_are_no_matter() -> None:
    chain = {f"s{number}": {f"s{number + 1}"} for number in range(20_000)} | {"s20000": set()}

    assert len(levels(chain)) == 20_001
    assert next(cycles(chain), None) is None
    circle = next(cycles(chain | {"s20000": {"s0"}}))
    assert len(circle) == 20_002
    assert len(cycle_message(circle)) < 500
