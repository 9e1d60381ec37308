"""Handing in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ratchet.engines.tool_server import Calls
from ratchet.kernel import BudgetExceeded, Conflict, LedgerUnavailable, Misuse, TrialStatus
from ratchet.ledger.trials import Ending, Submission, Trial, end_trial, open_trial
from ratchet.research.session import session_tools
from ratchet.research.sessions import Idea, SessionContext
from tests.research.sessions.lab import GOOD, HYPOTHESIS, Lab, say, tools, use


def edit(context: SessionContext, text: str = "WIDTH = 128\n") -> None:
    (context.workspace.path / "recipe.py").write_text(text)


def test_the_model_is_told_how_its_trial_went(both_labs: Lab) -> None:
    context = both_labs.context()
    edit(context)
    told = use(context, "submit_trial", hypothesis=HYPOTHESIS, expected_delta="-0.5", notes="two\nlines")
    assert told == {
        "exp_id": "001",
        "status": "discard",
        "score": 2.0,
        "delta_vs_best": 0.25,
        "compared_to": "000",
        "reason": "it ended as discard",
        "best": {"exp_id": "000", "score": 1.0},
        "trials_left_in_this_session": 0,
        "workspace_stands_on": "000",
    }
    [idea] = both_labs.ideas
    assert idea == Idea(hypothesis=HYPOTHESIS, parent=0, expected_delta="-0.5", notes="two\nlines")
    assert both_labs.trials()[1].specialist == "opt"


def test_a_crash_is_told_with_its_reason(lab: Lab) -> None:
    context = lab.context(ends=TrialStatus.CRASH)
    edit(context)
    told = use(context, "submit_trial", **GOOD)
    assert (told["status"], told["score"], told["reason"]) == ("crash", None, "it ended as crash")


@pytest.mark.parametrize("parent", ["000", "exp_0", 0])
def test_the_parent_may_be_named_if_it_is_true(lab: Lab, parent: str | int) -> None:
    context = lab.context()
    edit(context)
    assert use(context, "submit_trial", **GOOD, parent_exp=parent)["exp_id"] == "001"


def test_another_parent_than_the_true_one_is_refused(lab: Lab) -> None:
    lab.trial("WIDTH = 7\n")
    context = lab.context()
    with pytest.raises(Misuse, match="stands on 000, not on 001"):
        use(context, "submit_trial", **GOOD, parent_exp="001")
    assert lab.ideas == []


@pytest.mark.parametrize(
    "given",
    [
        {"hypothesis": "test"},
        {"hypothesis": "widen it\nand more of it"},
        {"hypothesis": "widen the layer</hypothesis>"},
        {"expected_delta": "a lot"},
        {"expected_delta": "NaN"},
        {"notes": 'fine <parameter name="x">'},
        {"parent_exp": "best"},
    ],
)
def test_what_cannot_be_meant_is_refused_before_it_costs_anything(lab: Lab, given: dict[str, Any]) -> None:
    context = lab.context()
    with pytest.raises(Misuse):
        use(context, "submit_trial", **{**GOOD, **given})
    assert (lab.ideas, context.trials_left) == ([], 1)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"hypothesis": HYPOTHESIS},
        {**GOOD, "specialist": "reg"},
        {**GOOD, "workdir": "/tmp"},
        {**GOOD, "hypothesis": ["a", "b"]},
        {**GOOD, "expected_delta": True},
        {**GOOD, "parent_exp": 1.5},
        {**GOOD, "hypothesis": "w" * 10_000},
    ],
)
def test_neither_identity_nor_directory_nor_anything_unknown_is_taken(
    lab: Lab, given: dict[str, Any]
) -> None:
    async def run() -> bool:
        return (await Calls(list(tools(lab.context()).values())).use("submit_trial", given)).failed

    assert asyncio.run(run())
    assert lab.ideas == []


def test_no_more_trials_are_made_than_a_session_may(lab: Lab) -> None:
    context = lab.context(task=replace(lab.task, trials_per_session=2))
    for number in (1, 2):
        edit(context, f"WIDTH = {number}\n")
        assert use(context, "submit_trial", **GOOD)["trials_left_in_this_session"] == 2 - number
    edit(context, "WIDTH = 3\n")
    with pytest.raises(Conflict, match="may make 2 trials, and has"):
        use(context, "submit_trial", **GOOD)
    assert len(lab.ideas) == 2


def test_a_session_goes_on_from_what_was_kept(lab: Lab) -> None:
    context = lab.context(ends=TrialStatus.KEEP, task=replace(lab.task, trials_per_session=2))
    edit(context)
    assert use(context, "submit_trial", **GOOD)["workspace_stands_on"] == "001"
    edit(context, "WIDTH = 256\n")
    use(context, "submit_trial", **GOOD)
    assert lab.trials()[2].parent == 1


def test_a_session_does_not_go_on_from_what_was_not(lab: Lab) -> None:
    context = lab.context(task=replace(lab.task, trials_per_session=2))
    edit(context)
    use(context, "submit_trial", **GOOD)
    edit(context, "WIDTH = 256\n")
    use(context, "submit_trial", **GOOD)
    assert lab.trials()[2].parent == 0


def test_a_machine_that_cannot_measure_is_no_result_and_ends_handing_in(lab: Lab) -> None:
    context = lab.context(ends=TrialStatus.INFRA_ERROR, task=replace(lab.task, trials_per_session=3))
    edit(context)
    told = use(context, "submit_trial", **GOOD)
    assert told["status"] == "infra_error"
    assert "exp_id" not in told
    with pytest.raises(Conflict, match="could not measure"):
        use(context, "submit_trial", **GOOD)


class Slow:
    """A submission that takes until it is allowed to end."""

    def __init__(self, lab: Lab) -> None:
        self.begun, self.allowed, self.cancelled = asyncio.Event(), asyncio.Event(), False
        self._lab = lab

    async def __call__(self, idea: Idea) -> Trial:
        self.begun.set()
        try:
            await self.allowed.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self._lab.record(self._lab.commit(0), TrialStatus.DISCARD, parent=idea.parent)


def slow_sitting(lab: Lab) -> tuple[SessionContext, Slow]:
    context, slow = lab.context(task=replace(lab.task, trials_per_session=5)), Slow(lab)
    context.submit = slow
    return context, slow


@pytest.mark.parametrize(
    ("name", "given"), [("submit_trial", GOOD), ("rebase_to", {"exp_id": 0})], ids=["submit", "rebase"]
)
def test_nothing_changes_the_workspace_while_a_trial_is_made_of_it(
    lab: Lab, name: str, given: Mapping[str, Any]
) -> None:
    async def run() -> None:
        context, slow = slow_sitting(lab)
        offered = tools(context)
        first = asyncio.create_task(offered["submit_trial"].run(GOOD))
        await slow.begun.wait()
        with pytest.raises(Conflict, match="being measured"):
            await offered[name].run(given)
        assert json.loads(await offered["read_snapshot"].run({"exp_id": 0}))["exp_id"] == "000"
        slow.allowed.set()
        assert json.loads(await first)["exp_id"] == "001"

    asyncio.run(run())


def test_a_model_that_hangs_up_does_not_end_its_trial(lab: Lab) -> None:
    async def run() -> None:
        context, slow = slow_sitting(lab)
        async with session_tools(context, engine="none") as offered:
            [submit] = [tool for tool in offered if tool.name == "submit_trial"]
            calling = asyncio.create_task(submit.run(GOOD))
            await slow.begun.wait()
            calling.cancel()
            await asyncio.wait({calling})
            asyncio.get_running_loop().call_soon(slow.allowed.set)
        assert [trial.exp_id for trial in context.trials] == ["001"]

    asyncio.run(run())


def test_a_session_that_is_cancelled_takes_its_trial_with_it(lab: Lab) -> None:
    async def run() -> None:
        context, slow = slow_sitting(lab)

        async def hold() -> None:
            async with session_tools(context, engine="none") as offered:
                [submit] = [tool for tool in offered if tool.name == "submit_trial"]
                await submit.run(GOOD)

        holding = asyncio.create_task(hold())
        await slow.begun.wait()
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        assert slow.cancelled

    asyncio.run(run())


@pytest.mark.parametrize("refused", [Misuse("nothing was changed"), BudgetExceeded("run", 1, "trials", 5, 5)])
def test_what_the_model_can_mend_or_must_know_is_told_and_the_session_goes_on(
    lab: Lab, refused: Exception
) -> None:
    async def run() -> None:
        context = lab.context()

        async def submit(_idea: Idea) -> Trial:
            raise refused

        context.submit = submit
        async with session_tools(context, engine="none") as offered:
            answer = await Calls(offered).use("submit_trial", GOOD)
            assert answer.failed
            assert str(refused) in answer.text
        assert context.broken is None
        assert bool(context.trials_left) is isinstance(refused, Misuse)

    asyncio.run(run())


def test_what_the_model_cannot_mend_ends_the_session_and_is_raised_there(lab: Lab) -> None:
    async def run() -> None:
        context = lab.context()

        async def submit(_idea: Idea) -> Trial:
            raise LedgerUnavailable("the disk is full")

        context.submit = submit
        async with session_tools(context, engine="none") as offered:
            calling = asyncio.create_task(Calls(offered).use("submit_trial", GOOD))
            await asyncio.Event().wait()
        await calling

    with pytest.raises(LedgerUnavailable, match="disk is full"):
        asyncio.run(run())


def test_read_output_reads_on_in_this_session_only(lab: Lab) -> None:
    one, other = lab.context(), lab.context()
    one.outputs.capped("x" * 40_000)
    assert say(one, "read_output", {"output": 1, "offset": 39_990}) == "x" * 10
    with pytest.raises(Exception, match="output 1 does not exist"):
        say(other, "read_output", {"output": 1})


def test_the_model_gets_measurements_feedback_and_the_end_of_the_log(lab: Lab) -> None:
    said = {"feedback": "the third case is slow", "artifacts": {"worst": "case 3"}, "log": "step 7 of 9"}
    hidden = {"held_out": 3.5, "samples": [1.0]}
    context = lab.context()
    context.submit = measured_with(context, lab, {"means": {"cpu_ms": 12.5}, **said, **hidden})
    edit(context)
    told = use(context, "submit_trial", **GOOD)
    assert {name: told[name] for name in said} == said
    assert told["measurements"] == {"cpu_ms": 12.5}
    assert "held_out" not in told
    again = use(context, "read_lineage", view="trial", exp_id="001")
    assert {name: again[name] for name in said} == said


def measured_with(context: SessionContext, lab: Lab, measurements: Mapping[str, Any]) -> Any:
    async def submit(idea: Idea) -> Trial:
        made = context.workspace.commit(idea.hypothesis)
        with lab.ledger.write() as tx:
            submission = Submission(
                specialist="opt", hypothesis=idea.hypothesis, commit=made.hash, parent=idea.parent
            )
            opened = open_trial(tx, lab.run_id, submission)
            ending = Ending(status=TrialStatus.DISCARD, score=1.0, compared_to=0, measurements=measurements)
            return end_trial(tx, lab.run_id, opened.number, ending)

    return submit
