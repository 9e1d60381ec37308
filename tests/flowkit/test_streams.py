"""Steps that pass their lines on as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ratchet.flowkit.errors import StepFailed, StepHeld
from ratchet.flowkit.execution import (
    MOST_AHEAD,
    QuietJournal,
    Result,
    StepCall,
    StepError,
    line_hash,
    lines_of,
)
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import Repeat, StepType, WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.flowkit.writer import write_spec

from .callers import Functions, step, workflow
from .test_executor import run


class Speaking(Functions):
    """`speak` gives the lines of each of its tries, and after each waits until `shout` was called with what comes of
    it."""

    def __init__(
        self,
        *tries: list[str],
        end: Any = None,
        waits: bool = True,
        becomes: Callable[[str], str] = lambda line: line,
    ) -> None:
        super().__init__({"shout": str.upper, "double": lambda line: line * 2})
        self._tries = iter(tries)
        self._end = end
        self._waits = waits
        self._becomes = becomes
        self._shouted: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []

    def _done(self, line: str) -> asyncio.Event:
        return self._shouted.setdefault(line, asyncio.Event())

    async def call(self, call: StepCall) -> Result:
        self.begun.append(call.name)
        if call.tool == "shout":
            line = call.values["line"]
            self._done(line).set()
            return Result(line.upper())
        if call.tool == "double":
            return Result(call.values["line"] * 2)
        assert call.lines is not None
        lines = next(self._tries)
        for line in lines:
            call.lines.give(line)
            if self._waits:
                await asyncio.wait_for(self._done(self._becomes(line)).wait(), 60)
        if isinstance(self._end, Exception):
            raise self._end
        return Result(lines if self._end is None else self._end)


def speaking(**more: Any) -> WorkflowSpec:
    return workflow(
        step("speak", "speak", stream=True, **more),
        step("shout", "shout", for_each="steps.speak.output", input_mapping={"line": "item"}),
    )


def test_each_line_is_done_while_the_step_still_speaks() -> None:
    caller = Speaking(["a", "b"])
    done = run(speaking(), caller)

    assert (done.status, done.outputs) == ("completed", {"shout": ["A", "B"]})
    assert done.steps["speak"].value == ["a", "b"]
    assert done.steps["shout[1]"].value == "B"
    assert caller.begun == ["speak", "shout[0]", "shout[1]"]


def test_what_was_done_for_each_line_can_be_passed_on_again() -> None:
    caller = Speaking(["a", "b"], becomes=lambda line: line * 2)
    spec = workflow(
        step("speak", "speak", stream=True),
        step("double", "double", for_each="steps.speak.output", input_mapping={"line": "item"}, stream=True),
        step("shout", "shout", for_each="steps.double.output", input_mapping={"line": "item"}),
    )
    done = run(spec, caller)
    assert done.outputs == {"shout": ["AA", "BB"]}


def test_lines_that_nothing_heard_of_before_the_end_are_done_too() -> None:
    done = run(speaking(), Speaking(["a"], end=["a", "b", "c"]))
    assert done.outputs == {"shout": ["A", "B", "C"]}


def test_a_step_that_fails_after_its_first_lines_takes_the_next_one_with_it() -> None:
    done = run(speaking(), Speaking(["a"], end=StepFailed("the end of it")))

    assert done.status == "failed"
    assert done.steps["speak"].error == "the end of it"
    assert done.steps["shout"].error == "needs speak, which was not completed"
    assert done.steps["shout[0]"].value == "A"


def test_a_step_that_fails_before_its_first_line_lets_the_next_one_be_skipped() -> None:
    done = run(speaking(), Speaking([], end=StepFailed("no word")))
    assert done.steps["shout"].status == "skipped"


def test_a_step_that_is_held_holds_the_next_one() -> None:
    done = run(speaking(), Speaking(["a"], end=StepHeld("no key")))
    assert (done.status, done.steps["shout"].status) == ("held", "held")


def test_a_second_try_that_says_the_same_has_nothing_done_twice() -> None:
    class Failing(Speaking):
        async def call(self, call: StepCall) -> Result:
            result = await super().call(call)
            if call.tool == "speak" and call.number == 1:
                raise StepFailed("once more")
            return result

    caller = Failing(["a", "b"], ["a", "b", "c"])
    done = run(speaking(retry_on_failure=True), caller)
    assert done.outputs == {"shout": ["A", "B", "C"]}
    assert caller.begun == ["speak", "shout[0]", "shout[1]", "speak", "shout[2]"]


def test_a_second_try_that_says_otherwise_counts() -> None:
    class Failing(Speaking):
        async def call(self, call: StepCall) -> Result:
            result = await super().call(call)
            if call.tool == "speak" and call.number == 1:
                raise StepFailed("once more")
            return result

    caller = Failing(["a", "b", "c"], ["a", "x"])
    done = run(speaking(retry_on_failure=True), caller)
    assert done.outputs == {"shout": ["A", "X"]}
    assert caller.begun[-1] == f"shout[1~{line_hash('x')}]"


def test_after_a_crash_lines_that_were_done_are_known_and_others_are_done() -> None:
    """A process died while the step spoke; the step is done again, and says something else in one place."""

    class Journal(QuietJournal):
        def finished(self, name: str) -> Result | StepError | None:
            known = {"shout[0]": ("a", "A from before"), "shout[1]": ("b", "B from before")}.get(name)
            return None if known is None else Result(known[1], {"line": line_hash(known[0])})

    caller = Speaking(["a", "x"], waits=False)
    done = run(speaking(), caller, journal=Journal())
    assert done.outputs == {"shout": ["A from before", "X"]}
    assert caller.begun == ["speak", f"shout[1~{line_hash('x')}]"]


def test_a_step_that_needs_more_than_the_lines_waits_for_the_end() -> None:
    caller = Speaking(["a"], waits=False)
    spec = workflow(
        step("speak", "speak", stream=True),
        step(
            "shout",
            "shout",
            for_each="steps.speak.output",
            input_mapping={"line": "item", "all": "steps.speak.output"},
        ),
    )
    assert run(spec, caller).outputs == {"shout": ["A"]}
    assert caller.begun == ["speak", "shout[0]"]


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb", ["a", "b"]),
        ("", []),
        ("a\n\n", ["a", ""]),
        ([1, {"x": 2}], [1, {"x": 2}]),
        ({"stdout": "a\nb\n", "exit_code": 0}, ["a", "b"]),
    ],
)
def test_a_text_a_list_and_what_was_printed_have_lines(value: Any, lines: list[Any]) -> None:
    assert lines_of(value) == lines


def test_what_has_no_lines_fails_the_step() -> None:
    done = run(speaking(), Speaking(["a"], end={"text": "a"}))
    assert done.steps["speak"].error == "streams lines, but gives dict and no list or text"
    assert done.status == "failed"


@pytest.mark.parametrize(
    "more",
    [
        {"step_type": StepType.APPROVAL, "description": "Is it so?"},
        {"step_type": StepType.SUB_WORKFLOW, "workflow_path": "other.json"},
        {"repeat": Repeat("last == 1", 2)},
    ],
)
def test_what_has_no_lines_of_its_own_cannot_stream(more: Mapping[str, Any]) -> None:
    [problem] = check_spec(workflow(step("a", "speak", stream=True, **more)))
    assert problem.endswith("has lines to stream")


def test_a_step_that_streams_is_written_and_read_again() -> None:
    assert write_spec(speaking())["steps"][0]["stream"] is True
    assert read_spec(write_spec(speaking())).steps[0].stream


class Racing(Functions):
    """`count` gives lines as fast as it may; each of the others is done with a line after some turns of the loop."""

    def __init__(self, lines: int, *, turns: int = 1, bad: int | None = None) -> None:
        super().__init__({})
        self._lines = lines
        self._turns = turns
        self._bad = bad
        self.given = 0
        self.done: dict[str, int] = {}
        self.running: dict[str, int] = {}
        self.most_ahead = 0
        self.most_running = 0

    async def call(self, call: StepCall) -> Result:
        if call.lines is not None:
            for number in range(self._lines):
                wait = call.lines.give(number)
                self.given = number + 1
                self.most_ahead = max(self.most_ahead, self.given - min(self.done.values(), default=0))
                if wait is not None:
                    await wait
                await asyncio.sleep(0)
            return Result(list(range(self._lines)))
        tool = call.tool or ""
        self.done.setdefault(tool, 0)
        self.running[tool] = self.running.get(tool, 0) + 1
        self.most_running = max(self.most_running, self.running[tool])
        for _ in range(self._turns if tool != "quick" else 1):
            await asyncio.sleep(0)
        self.running[tool] -= 1
        self.done[tool] += 1
        if call.values.get("line") == self._bad:
            raise StepFailed("this one not")
        return Result(call.values.get("line"))


def _each(name: str, source: str, tool: str, **more: Any) -> Any:
    mapping = {"line": "item", **more.pop("also", {})}
    return step(name, tool, for_each=f"steps.{source}.output", input_mapping=mapping, **more)


COUNT = step("count", "count", stream=True)


@pytest.mark.parametrize("places", [1, 2, 64])
def test_a_step_that_is_quicker_than_the_next_waits_for_it(places: int) -> None:
    """Also where both have to share one place."""
    caller = Racing(700, turns=6)
    done = run(workflow(COUNT, _each("take", "count", "slow")), caller, concurrency=places)
    assert done.outputs == {"take": list(range(700))}
    assert caller.most_ahead <= MOST_AHEAD + places
    assert caller.most_running <= places


def test_the_slowest_of_those_that_follow_counts() -> None:
    caller = Racing(700, turns=6)
    spec = workflow(COUNT, _each("take", "count", "slow"), _each("also", "count", "quick"))
    done = run(spec, caller, concurrency=3)
    assert [len(each) for each in done.outputs.values()] == [700, 700]
    assert caller.most_ahead <= MOST_AHEAD + 3


def test_what_is_passed_on_again_waits_as_well() -> None:
    caller = Racing(700, turns=6)
    spec = workflow(COUNT, _each("pass", "count", "quick", stream=True), _each("take", "pass", "slow"))
    behind = []

    class Watched(Racing):
        async def call(self, call: StepCall) -> Result:
            result = await super().call(call)
            behind.append(self.done.get("quick", 0) - self.done.get("slow", 0))
            return result

    caller = Watched(700, turns=6)
    done = run(spec, caller, concurrency=2)
    assert done.outputs == {"take": list(range(700))}
    assert max(behind) <= 2 * MOST_AHEAD


def test_items_of_a_list_that_are_passed_on_wait_as_well() -> None:
    caller = Racing(0, turns=6)
    spec = workflow(
        step("pass", "quick", for_each=list(range(700)), input_mapping={"line": "item"}, stream=True),
        _each("take", "pass", "slow"),
    )
    assert run(spec, caller, concurrency=2).outputs == {"take": list(range(700))}


@pytest.mark.parametrize("places", [1, 4])
def test_a_step_that_begins_only_after_the_end_of_the_lines_is_not_waited_for(places: int) -> None:
    """Through another step, or as it follows two that come of the same."""
    caller = Racing(600, turns=2)
    spec = workflow(
        COUNT,
        step("all", "quick", input_mapping={"line": "steps.count.output"}),
        _each("late", "count", "slow", also={"all": "steps.all.output"}),
        _each("pass", "count", "quick", stream=True),
        _each("second", "count", "slow"),
        _each("both", "pass", "slow", also={"second": "steps.second.output"}),
    )
    done = run(spec, caller, concurrency=places)
    assert (done.status, len(done.outputs["late"]), len(done.outputs["both"])) == ("completed", 600, 600)


def test_a_line_that_fails_does_not_keep_the_rest_waiting() -> None:
    caller = Racing(600, turns=2, bad=3)
    spec = workflow(COUNT, _each("pass", "count", "quick", stream=True), _each("take", "pass", "slow"))
    done = run(spec, caller, concurrency=1)
    assert done.status == "failed"
    assert caller.done["quick"] == 600
