"""Ratchet with something broken: everything is told as what it is, and a wrong expectation is noticed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.checker import CheckPart, Grade, TaskCheck, check_harness
from ratchet.research.checker.faults import (
    FAULTS,
    EvaluatorFault,
    open_scene,
    try_evaluator,
    try_killed_supervisor,
)
from tests.research.checker.trying import failures


@pytest.mark.soak
def test_every_fault_of_an_evaluator_and_of_the_machine_is_told_as_what_it_is() -> None:
    found = asyncio.run(check_harness())
    assert failures({f"{each.part} {each.what}": each for each in found}) == {}
    evaluators = {each.what for each in found if each.part is CheckPart.EVALUATOR}
    assert evaluators == {fault.name for fault in FAULTS} | {"is edited while it runs"}
    assert [each.what for each in found if each.part is CheckPart.MACHINE] == [
        "a trial writes more than its limit",
        "the process that watches a trial is killed",
        "the parent of all sandboxes is killed",
        "the disk is full",
        "the supervisor is killed, and resumed",
    ]
    assert all(each.expected and each.seen for each in found if each.grade is Grade.OK)


@pytest.mark.soak
def test_a_supervisor_is_killed_and_resumed_on_either_database(url: str, tmp_path: Path, hill: Path) -> None:
    found = try_killed_supervisor(hill, tmp_path, url)
    assert (found.grade, found.expected) == (Grade.OK, "24 trials, none in flight, no process left"), (
        found.detail
    )


def tried(tmp_path: Path, fault: EvaluatorFault) -> TaskCheck:
    async def run() -> TaskCheck:
        async with open_scene(tmp_path) as scene:
            return await try_evaluator(scene, fault)

    return asyncio.run(run())


def test_an_end_that_nobody_expected_is_a_failure(tmp_path: Path) -> None:
    [fault] = [each for each in FAULTS if each.name == "answers text"]
    found = tried(tmp_path, replace(fault, status=TrialStatus.DISQUALIFIED))
    assert found.grade is Grade.FAILED
    assert found.detail.startswith("it ended as crash: the evaluator's answer has no finite number")


def test_a_score_where_none_was_expected_is_a_failure(tmp_path: Path) -> None:
    good = EvaluatorFault("prints NaN", "print('{\"error\": 1}')\n", TrialStatus.CRASH, command=True)
    assert tried(tmp_path, good).detail == "it ended as score 1.0"
