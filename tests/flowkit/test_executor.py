"""The executor: order, data, failures, retries, lists, conditions, workflows inside workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ratchet.flowkit.errors import SpecError, StepFailed, StepHeld
from ratchet.flowkit.execution import (
    Executed,
    Inside,
    QuietJournal,
    Result,
    StepCall,
    StepError,
    StepRecord,
    metrics_within,
)
from ratchet.flowkit.executor import execute
from ratchet.flowkit.spec import StepType, WorkflowInput, WorkflowOutput, WorkflowSpec, WorkflowStep
from tests.flowkit.callers import Functions, echo, rest, step, workflow


def run(
    spec: WorkflowSpec,
    caller: Functions | None = None,
    inputs: Mapping[str, Any] | None = None,
    **more: Any,
) -> Executed:
    return asyncio.run(execute(spec, inputs or {}, caller or Functions({"echo": echo}), **more))


def fail(**values: Any) -> Any:
    raise ValueError("no luck")


def test_values_are_passed_from_inputs_through_steps_to_outputs() -> None:
    spec = workflow(
        step("double", "twice", input_mapping={"number": "inputs.number"}),
        step("tell", input_mapping={"text": "it is ${steps.double.output}!"}),
        inputs=(WorkflowInput("number", "number"),),
        outputs=(
            WorkflowOutput("text", source_reference="steps.tell.output"),
            WorkflowOutput("number", source_reference="steps.double.output"),
        ),
    )
    done = run(spec, Functions({"twice": lambda number: number * 2, "echo": echo}), {"number": 21})
    assert (done.status, done.outputs) == ("completed", {"text": "it is 42!", "number": 42})
    assert done.steps["double"].value == 42
    assert done.steps["double"].metrics["wall_ms"] >= 0


def test_without_declared_outputs_those_of_the_last_steps_are_given() -> None:
    spec = workflow(step("a", input_mapping={"x": 1}), step("b", input_mapping={"x": "steps.a.output"}))
    assert run(spec).outputs == {"b": 1}


def test_a_deeper_path_leads_into_a_value() -> None:
    spec = workflow(
        step("a", input_mapping={"x": {"rows": [{"name": "first"}, {"name": "second"}]}}),
        step("b", input_mapping={"x": "steps.a.output.rows.1.name"}),
        step("c", input_mapping={"x": "steps.a.output.rows.7"}),
    )
    done = run(spec)
    assert done.steps["b"].value == "second"
    assert done.steps["c"].status == "failed"
    assert "steps.a.output.rows.7" in (done.steps["c"].error or "")


def test_a_step_begins_the_moment_that_its_inputs_exist() -> None:
    """A diamond with branches of different lengths: the short one continues while the long one still runs."""
    late = asyncio.Event()
    seen: list[str] = []

    async def slow() -> str:
        await late.wait()
        return "slow"

    def quick(of: str) -> str:
        seen.append(of)
        if of == "second":
            late.set()
        return of

    spec = workflow(
        step("begin", input_mapping={"x": 0}),
        step("long", "slow", depends_on=("begin",)),
        step("short", "quick", depends_on=("begin",), input_mapping={"of": "first"}),
        step("shorter", "quick", depends_on=("short",), input_mapping={"of": "second"}),
        step("end", input_mapping={"a": "steps.long.output", "b": "steps.shorter.output"}),
    )
    # Only the second of the short branch lets the long one end: with a barrier between waves it would never.
    done = run(spec, Functions({"slow": slow, "quick": quick, "echo": echo}), concurrency=2)
    assert done.outputs == {"end": {"a": "slow", "b": "second"}}


def test_no_more_steps_run_at_once_than_there_are_places() -> None:
    caller = Functions({"rest": rest})
    run(workflow(*(step(f"s{n}", "rest", input_mapping={"x": n}) for n in range(40))), caller, concurrency=3)
    assert caller.most_at_once == 3


def test_steps_of_one_parallel_group_run_side_by_side() -> None:
    caller = Functions({"rest": rest})
    spec = workflow(
        step("p", "rest", parallel_group=1),
        step("x", "rest"),
        step("q", "rest", parallel_group=1),
        step("y", "rest", parallel_group=2),
    )
    run(spec, caller, concurrency=2)
    assert caller.order[:2] == ["p begins", "q begins"]


def test_a_failed_step_takes_with_it_only_what_needs_it() -> None:
    spec = workflow(
        step("bad", "fail"),
        step("child", depends_on=("bad",)),
        step("grandchild", input_mapping={"x": "steps.child.output"}),
        step("alone", input_mapping={"x": 7}),
        outputs=(
            WorkflowOutput("good", source_reference="steps.alone.output"),
            WorkflowOutput("gone", source_reference="steps.grandchild.output"),
        ),
    )
    done = run(spec, Functions({"fail": fail, "echo": echo}))
    assert (done.status, done.outputs) == ("failed", {"good": 7})
    assert {name: record.status for name, record in done.steps.items()} == {
        "bad": "failed",
        "child": "skipped",
        "grandchild": "skipped",
        "alone": "completed",
    }
    assert done.error == "bad: ValueError: no luck"


def test_a_step_is_tried_again_as_often_as_it_says() -> None:
    tries: list[int] = []

    def third_time(**values: Any) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return "now"

    spec = workflow(step("a", "third", retry_on_failure=True, max_retries=2))
    done = run(spec, Functions({"third": third_time}))
    assert (done.status, done.steps["a"].tries) == ("completed", 3)
    tries.clear()
    spec = workflow(step("a", "third", retry_on_failure=True, max_retries=1))
    done = run(spec, Functions({"third": third_time}))
    assert (done.status, done.steps["a"].tries, len(tries)) == ("failed", 2, 2)


def test_without_leave_to_retry_there_is_one_try() -> None:
    caller = Functions({"fail": fail})
    run(workflow(step("a", "fail")), caller)
    assert caller.order == ["a begins"]


def test_the_fallback_is_used_when_the_tool_has_failed_for_good() -> None:
    caller = Functions({"fail": fail, "echo": echo})
    spec = workflow(
        step("a", "fail", input_mapping={"x": 5}, fallback_tool="echo", retry_on_failure=True, max_retries=1)
    )
    done = run(spec, caller)
    assert (done.steps["a"].value, done.steps["a"].tries) == (5, 3)
    spec = workflow(step("a", "fail", fallback_tool="fail"))
    assert run(spec, caller).status == "failed"


def test_a_final_failure_is_not_tried_again() -> None:
    async def refuse() -> None:
        raise StepFailed("wrong input", final=True)

    caller = Functions({"refuse": refuse})
    done = run(workflow(step("a", "refuse", retry_on_failure=True)), caller)
    assert (done.steps["a"].error, done.steps["a"].tries) == ("wrong input", 1)


@pytest.mark.soak
def test_a_step_that_takes_too_long_has_failed() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    done = run(workflow(step("a", "hang", timeout=0.01)), Functions({"hang": hang}))
    assert done.steps["a"].error == "took longer than 0.01 s"


def test_a_list_is_worked_on_item_by_item_and_keeps_its_order() -> None:
    spec = workflow(
        step("numbers", input_mapping={"x": [3, 1, 2]}),
        step("each", "add", for_each="steps.numbers.output", input_mapping={"n": "item", "at": "index"}),
    )
    done = run(spec, Functions({"echo": echo, "add": lambda n, at: n * 10 + at}))
    assert done.outputs == {"each": [30, 11, 22]}
    assert done.steps["each[1]"].value == 11


def test_one_bad_item_fails_the_step_and_leaves_the_others() -> None:
    def odd(n: int) -> int:
        if n == 2:
            raise ValueError("even")
        return n

    spec = workflow(step("each", "odd", for_each=[1, 2, 3], input_mapping={"n": "item"}))
    done = run(spec, Functions({"odd": odd}))
    assert (done.status, done.steps["each"].error) == ("failed", "item 1: ValueError: even")
    assert (done.steps["each[0]"].value, done.steps["each[2]"].value) == (1, 3)


def test_an_empty_list_gives_an_empty_list_and_no_list_fails() -> None:
    spec = workflow(step("each", for_each=[], input_mapping={"x": "item"}))
    assert run(spec).outputs == {"each": []}
    spec = workflow(step("a", input_mapping={"x": "text"}), step("each", for_each="steps.a.output"))
    assert "needs a list" in (run(spec).steps["each"].error or "")


@pytest.mark.parametrize(("mode", "ran"), [("fast", {"quick"}), ("good", {"slow"})])
def test_conditions_choose_a_branch_and_a_merge_takes_what_there_is(mode: str, ran: set[str]) -> None:
    spec = workflow(
        step("quick", when="inputs.mode == 'fast'", input_mapping={"x": "q"}),
        step("slow", when="inputs.mode != 'fast'", input_mapping={"x": "s"}),
        step("merge", input_mapping={"a": "steps.quick.output", "b": "steps.slow.output"}),
        inputs=(WorkflowInput("mode"),),
    )
    done = run(spec, inputs={"mode": mode})
    assert {name for name in ("quick", "slow") if done.steps[name].status == "completed"} == ran
    assert done.status == "completed"
    assert sorted(map(str, done.outputs["merge"].values())) == sorted(["None", next(iter(ran))[0]])


def test_what_takes_only_from_skipped_steps_is_skipped_as_well() -> None:
    spec = workflow(
        step("a", when="1 > 2"),
        step("b", input_mapping={"x": "steps.a.output"}),
        step("c", depends_on=("b",)),
    )
    done = run(spec)
    assert done.status == "completed"
    assert {record.status for record in done.steps.values()} == {"skipped"}


def test_a_workflow_inside_a_step_gives_its_outputs() -> None:
    inner = WorkflowSpec(
        "inner",
        inputs=(WorkflowInput("n", "number"),),
        steps=(step("add", "plus", input_mapping={"n": "inputs.n"}),),
        outputs=(WorkflowOutput("sum", source_reference="steps.add.output"),),
    )
    spec = workflow(
        step("one", step_type=StepType.SUB_WORKFLOW, workflow_spec=inner, input_mapping={"n": 1}),
        step(
            "many",
            step_type=StepType.SUB_WORKFLOW,
            workflow_path="inner.json",
            for_each=[5, 6],
            input_mapping={"n": "item"},
        ),
        step("last", input_mapping={"x": "steps.one.output.sum"}),
    )
    done = run(spec, Functions({"plus": lambda n: n + 1, "echo": echo}, {"inner.json": inner}))
    assert done.outputs == {"many": [{"sum": 6}, {"sum": 7}], "last": 2}
    assert done.steps["one/add"].value == 2
    assert done.steps["many[1]/add"].value == 7


def test_a_failure_inside_names_the_inner_step() -> None:
    inner = WorkflowSpec("inner", steps=(step("deep", "fail"),))
    spec = workflow(step("outer", step_type=StepType.SUB_WORKFLOW, workflow_spec=inner))
    done = run(spec, Functions({"fail": fail}))
    assert done.steps["outer"].error == "deep: ValueError: no luck"
    assert done.steps["outer/deep"].status == "failed"


def test_a_workflow_that_contains_itself_ends() -> None:
    inner = WorkflowSpec(
        "loop", steps=(step("again", step_type=StepType.SUB_WORKFLOW, workflow_path="loop"),)
    )
    done = run(inner, Functions({}, {"loop": inner}))
    assert done.status == "failed"
    assert "deep inside" in (done.error or "")


def test_a_step_that_waits_for_a_person_holds_only_what_needs_it() -> None:
    async def ask() -> None:
        raise StepHeld("needs a yes")

    spec = workflow(
        step("ask", "ask"), step("after", depends_on=("ask",)), step("free", input_mapping={"x": 1})
    )
    done = run(spec, Functions({"ask": ask, "echo": echo}))
    assert (done.status, done.steps["ask"].status, done.steps["free"].status) == ("held", "held", "completed")
    assert "after" not in done.steps


def test_nothing_runs_when_the_workflow_or_its_inputs_are_wrong() -> None:
    caller = Functions({"echo": echo})
    cyclic = workflow(step("a", depends_on=("b",)), step("b", depends_on=("a",)))
    with pytest.raises(SpecError, match=r"a → b → a|b → a → b"):
        run(cyclic, caller)
    with pytest.raises(SpecError, match="Missing required input: topic"):
        run(workflow(step("a"), inputs=(WorkflowInput("topic"),)), caller)
    assert caller.order == []


def test_a_step_that_holds_a_workflow_begins_only_once_it_is_let_in() -> None:
    told: list[str] = []

    class Tells(QuietJournal):
        async def started(self, call: StepCall) -> None:
            told.append(f"{call.name} begins")

        async def retrying(self, call: StepCall, error: StepError, pause_seconds: float) -> None:
            told.append(f"{call.name} again")

    @dataclass
    class Door(Functions):
        """Lets in what is on the list, and says so before anything begins."""

        guests: tuple[str, ...] = ()

        async def around(self, call: StepCall, inside: Inside) -> Result | StepError | None:
            if call.name not in self.guests:
                raise StepFailed(f"{call.name} is not on the list", final=True)
            told.append(f"{call.name} is let in")
            return await inside(call.values)

    held = workflow(step("one"))
    spec = workflow(
        *(step(name, "flow", workflow_spec=held, fallback_tool="echo") for name in ("in", "out")),
    )
    done = run(spec, Door({"echo": echo}, guests=("in",)), journal=Tells())
    assert done.status == "completed", done.error
    assert told.index("in is let in") < told.index("in begins") < told.index("in/one begins")
    # What never began is not begun again: the other tool is the first that is called.
    assert [each for each in told if each.startswith("out")] == ["out begins"]


def test_what_was_simulated_stays_so_within_even_from_the_cache() -> None:
    took = {"cpu_ms": 2.0, "simulated": True}
    within = {"within": {"cpu_ms": 3.0, "simulated": True}}
    fresh = [StepRecord("completed", metrics=took), StepRecord("completed", metrics=within)]
    assert metrics_within(fresh) == {"within": {"cpu_ms": 5.0, "simulated": True}}
    for metrics in (took, within):
        cached = StepRecord("completed", metrics=metrics, cached=True)
        assert metrics_within([cached]) == {"within": {"simulated": True}}
    assert metrics_within([StepRecord("skipped")]) == {}


def test_what_was_finished_before_is_not_done_again() -> None:
    class Remembers(QuietJournal):
        def finished(self, name: str) -> Result | StepError | None:
            return {"a": Result(41), "bad": StepError("as before")}.get(name)

    caller = Functions({"echo": echo})
    spec = workflow(step("a"), step("bad"), step("b", input_mapping={"x": "steps.a.output"}))
    done = run(spec, caller, journal=Remembers())
    assert caller.order == ["b begins", "b ends"]
    assert (done.outputs, done.error) == ({"b": 41}, "bad: as before")


def test_a_fault_of_the_journal_ends_everything_at_once() -> None:
    cancelled: list[str] = []

    async def hang(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    class Breaks(QuietJournal):
        async def completed(self, call: StepCall, result: Result) -> None:
            raise OSError("no disk")

    spec = workflow(step("a", "hang", for_each=["1", "2"], input_mapping={"name": "item"}), step("b", "rest"))
    with pytest.raises(OSError, match="no disk"):
        run(spec, Functions({"hang": hang, "rest": rest}), journal=Breaks(), concurrency=4)
    assert sorted(cancelled) == ["1", "2"]


def test_cancelling_reaches_every_call() -> None:
    began, ended = asyncio.Event(), []

    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)

    async def cancel() -> None:
        running = asyncio.create_task(execute(workflow(step("a", "hang")), {}, Functions({"hang": hang})))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert ended == [1]


@pytest.mark.soak
def test_a_chain_of_ten_thousand_steps_runs() -> None:
    steps = [step("s0", input_mapping={"x": 0})]
    steps += [step(f"s{n}", "next", input_mapping={"x": f"steps.s{n - 1}.output"}) for n in range(1, 10_000)]
    done = run(workflow(*steps), Functions({"echo": echo, "next": lambda x: x + 1}))
    assert done.outputs == {"s9999": 9_999}


def test_another_tool_stands_in_for_a_workflow_that_fails() -> None:
    inner = WorkflowSpec("inner", inputs=(WorkflowInput("value", "number"),), steps=(step("bad", "fail"),))
    holds = WorkflowStep(
        "a",
        StepType.SUB_WORKFLOW,
        workflow_spec=inner,
        fallback_tool="echo",
        input_mapping={"value": 7},
    )
    done = run(workflow(holds), Functions({"fail": fail, "echo": echo}))
    assert (done.status, done.outputs) == ("completed", {"a": 7})
    assert done.steps["a/bad"].status == "failed"


def test_what_items_and_steps_inside_took_is_added_up() -> None:
    class Costly(Functions):
        async def call(self, call: StepCall) -> Result:
            taken = {"cost_microusd": 2, "cpu_ms": 1.5, "peak_bytes": call.values["n"], "wall_ms": 9.0}
            return Result(call.values["n"], taken)

    each = step("each", for_each=[5, 3], input_mapping={"n": "item"})
    inner = WorkflowSpec("inner", steps=(each, step("one", input_mapping={"n": 1})))
    done = run(workflow(WorkflowStep("a", StepType.SUB_WORKFLOW, workflow_spec=inner)), Costly({}))
    assert done.steps["a/each"].metrics == {
        "items": 2,
        "within": {"cost_microusd": 4, "cpu_ms": 3.0, "peak_bytes": 5},
    }
    assert done.steps["a"].metrics == {"within": {"cost_microusd": 6, "cpu_ms": 4.5, "peak_bytes": 5}}
