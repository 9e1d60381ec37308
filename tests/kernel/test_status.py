from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.kernel import (
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    Conflict,
    IllegalTransition,
    RunStatus,
    StepStatus,
    check_transition,
)

TABLES = [("run", RunStatus, RUN_TRANSITIONS), ("step", StepStatus, STEP_TRANSITIONS)]
FINAL_RUNS = {RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.COMPLETED}
FINAL_STEPS = {StepStatus.COMPLETED, StepStatus.CANCELLED}


@pytest.mark.parametrize(("entity", "statuses", "table"), TABLES)
def test_every_pair_of_statuses_is_allowed_exactly_if_the_table_has_it(entity, statuses, table) -> None:
    for current, wanted in product(statuses, statuses):
        if wanted in table[current]:
            check_transition(entity, 7, current, wanted)
        else:
            with pytest.raises(IllegalTransition) as raised:
                check_transition(entity, 7, current, wanted)
            assert raised.value.allowed == tuple(sorted(table[current]))


@pytest.mark.parametrize(("entity", "statuses", "table"), TABLES)
def test_a_table_speaks_of_every_status_and_of_no_other(entity, statuses, table) -> None:
    assert set(table) == set(statuses)
    assert all(allowed <= set(statuses) for allowed in table.values())


def test_nothing_stays_as_it_is_by_a_transition() -> None:
    for _, _, table in TABLES:
        assert all(status not in allowed for status, allowed in table.items())


def test_the_final_statuses_are_those_of_the_design() -> None:
    assert {status for status in RunStatus if status.final} == FINAL_RUNS
    assert {status for status in StepStatus if status.final} == FINAL_STEPS


def test_the_tables_cannot_be_changed() -> None:
    for _, statuses, table in TABLES:
        with pytest.raises(TypeError):
            table[next(iter(statuses))] = frozenset()


@pytest.mark.parametrize(("entity", "statuses", "table"), TABLES)
def test_every_status_can_be_reached_and_every_unfinished_one_can_end(entity, statuses, table) -> None:
    start = statuses("pending")
    assert reachable(table, start) == set(statuses)
    for status in statuses:
        assert status.final or any(end.final for end in reachable(table, status))


@given(st.data())
def test_no_path_leaves_a_final_status(data: st.DataObject) -> None:
    statuses = data.draw(st.sampled_from([RunStatus, StepStatus]))
    status = statuses("pending")
    for wanted in data.draw(st.lists(st.sampled_from(list(statuses)), max_size=30)):
        was_final = status.final
        try:
            check_transition("thing", 1, status, wanted)
        except IllegalTransition:
            continue
        assert not was_final
        status = wanted


def test_the_message_names_the_thing_its_status_and_what_it_can_become() -> None:
    with pytest.raises(IllegalTransition) as raised:
        check_transition("step", 7, StepStatus.PENDING, StepStatus.COMPLETED)
    assert str(raised.value) == (
        "step 7 is pending, so it cannot become completed; it can become blocked, cancelled or running"
    )


def test_the_message_says_when_a_status_is_final() -> None:
    with pytest.raises(
        IllegalTransition, match="run 3 is cancelled, so it cannot become running; that is final"
    ):
        check_transition("run", 3, RunStatus.CANCELLED, RunStatus.RUNNING)


def test_an_illegal_transition_is_a_conflict_over_http() -> None:
    assert issubclass(IllegalTransition, Conflict)
    assert IllegalTransition.http_status == 409


def reachable(table, start) -> set:
    found = {start}
    frontier = [start]
    while frontier:
        for status in table[frontier.pop()] - found:
            found.add(status)
            frontier.append(status)
    return found
