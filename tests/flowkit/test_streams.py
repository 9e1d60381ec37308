"""Steps that pass their lines on as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ratchet.flowkit.errors import StepFailed, StepHeld
from ratchet.flowkit.execution import QuietJournal, Result, StepCall, StepError, line_hash, lines_of
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
