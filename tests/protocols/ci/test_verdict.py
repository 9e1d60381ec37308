"""Whether CI has passed a commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.forges import CheckState
from ratchet.ledger.protocols import CiCheck
from ratchet.protocols.ci import judge_checks

P, F, W, N = CheckState.PASSED, CheckState.FAILED, CheckState.PENDING, CheckState.NEUTRAL


def checks(**states: CheckState) -> list[CiCheck]:
    return [
        CiCheck(1, "c", name, "github", str(state), None, {"job": "j"}, at=1, updated_at=1)
        for name, state in states.items()
    ]


@pytest.mark.parametrize(
    ("states", "required", "verdict"),
    [
        ({}, [], W),
        ({"test": P}, [], P),
        ({"test": P, "lint": W}, [], W),
        ({"test": P, "lint": F}, [], F),
        ({"test": W, "lint": F}, [], F),
        ({"test": P, "docs": N}, [], P),
        ({"docs": N}, [], W),
        ({"test": P}, ["test", "lint"], W),
        ({"test": P, "lint": P}, ["test", "lint"], P),
        ({"test": P, "lint": N}, ["test", "lint"], P),
        ({"test": P, "other": F}, ["test"], P),
        ({"test": P, "other": W}, ["test"], P),
        ({"other": P}, ["test"], W),
        ({"test": P, "test (pull_request)": F}, ["test"], F),
        ({"test (merge request)": P}, ["test"], P),
    ],
)
def test_every_required_check_must_have_passed_and_one_that_failed_is_enough(
    states: dict[str, CheckState], required: list[str], verdict: CheckState
) -> None:
    assert judge_checks(checks(**states), required).state is verdict


def test_what_is_waited_for_and_what_failed_are_named() -> None:
    assert judge_checks(checks(test=W), ["test", "lint"]).waiting == ("lint", "test")
    assert judge_checks(checks(test=F), []).reason == "CI failed: test (j)"


NAMES = st.sampled_from(["a", "b", "c"])
STATES = st.dictionaries(NAMES, st.sampled_from(list(CheckState)))


@given(states=STATES, required=st.lists(NAMES, unique=True))
def test_nothing_passes_while_a_required_check_has_not(
    states: dict[str, CheckState], required: list[str]
) -> None:
    verdict = judge_checks(checks(**states), required)
    counted = {name: states.get(name, W) for name in required or states}
    if verdict.state is P:
        assert set(counted.values()) <= {P, N}
        assert P in counted.values()
    assert (verdict.state is F) == (F in counted.values())
