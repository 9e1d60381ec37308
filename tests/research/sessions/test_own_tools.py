"""The tools that a task brings along."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import EngineTool
from ratchet.engines.tool_server import Calls
from ratchet.kernel import Misuse
from ratchet.research.adapter import Program, TaskAdapter, ToolCommand
from ratchet.research.session import session_tools
from ratchet.sandbox import Bounds
from tests.research.sessions.lab import Lab, say, tools

LENGTH = """
from pathlib import Path

def measure(asked):
    return {"bytes": len(Path(asked["candidate"], "recipe.py").read_bytes()), "given": asked["given"]}

def forge(asked):
    Path(asked["candidate"], "recipe.py").write_text("forged")

def spin(asked):
    while True:
        pass
"""


def command(name: str, **program: Any) -> ToolCommand:
    schema = {"type": "object", "properties": {"depth": {"type": "integer"}}, "additionalProperties": False}
    return ToolCommand(name=name, description="Measure it.", program=Program(**program), input_schema=schema)


@pytest.fixture
def task(lab: Lab) -> TaskAdapter:
    (lab.task.root / "length.py").write_text(LENGTH)
    return lab.task


def test_a_function_of_the_task_runs_in_the_sandbox_on_the_workspace(lab: Lab, task: TaskAdapter) -> None:
    node = command("measure", file="length.py", function="measure")
    context = lab.context(task=replace(task, tool_commands=(node,)))
    (context.workspace.path / "recipe.py").write_text("x" * 77)
    assert json.loads(say(context, "measure", {"depth": 3})) == {"bytes": 77, "given": {"depth": 3}}


def test_a_command_of_the_task_runs_there_with_json_on_stdin(lab: Lab, task: TaskAdapter) -> None:
    script = "import json,sys,os; q=json.load(sys.stdin); print(q['given']['depth'], sorted(os.listdir('.')))"
    program = command("show", argv=("{python}", "-c", script))
    context = lab.context(task=replace(task, tool_commands=(program,)))
    assert say(context, "show", {"depth": 3}).strip() == "3 ['lib', 'recipe.py', 'run.sh']"


@pytest.mark.parametrize(
    "made",
    [
        {"file": "length.py", "function": "forge"},
        {"argv": ("/bin/sh", "-c", "echo forged > recipe.py")},
    ],
    ids=["function", "command"],
)
def test_it_cannot_write_into_the_workspace(lab: Lab, task: TaskAdapter, made: dict[str, Any]) -> None:
    context = lab.context(task=replace(task, tool_commands=(command("forge", **made),)))
    before = (context.workspace.path / "recipe.py").read_text()
    with pytest.raises(Misuse, match="forge failed"):
        say(context, "forge", {})
    assert (context.workspace.path / "recipe.py").read_text() == before


def test_it_sees_neither_the_evaluator_nor_the_environment(
    lab: Lab, task: TaskAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "swordfish")
    answers = task.root / "evaluator" / "answers"
    answers.parent.mkdir()
    answers.write_text("42")
    look = command("look", argv=("/bin/sh", "-c", f"env; cat {answers} || echo hidden"))
    said = say(lab.context(task=replace(task, tool_commands=(look,))), "look", {})
    assert "hidden" in said
    assert "42" not in said.split()
    assert "swordfish" not in said


def test_one_that_never_ends_is_ended(lab: Lab, task: TaskAdapter) -> None:
    spin = command("spin", file="length.py", function="spin", bounds=Bounds(wall_seconds=0.5))
    with pytest.raises(Misuse, match=r"spin failed: .*wall"):
        say(lab.context(task=replace(task, tool_commands=(spin,))), "spin", {})


def test_what_does_not_fit_its_schema_is_not_given_to_it(lab: Lab, task: TaskAdapter) -> None:
    node = command("measure", file="length.py", function="measure")
    offered = tools(lab.context(task=replace(task, tool_commands=(node,))))
    answer = asyncio.run(Calls(list(offered.values())).use("measure", {"depth": "deep"}))
    assert answer.failed


@dataclass(kw_only=True)
class Talkative(TaskAdapter):
    def tools(self, directory: Path) -> Sequence[EngineTool]:
        async def where(_given: Mapping[str, Any]) -> str:
            return directory.name

        return (EngineTool("where", "Tell where.", {"type": "object"}, where),)


def test_an_adapter_may_bring_functions_of_its_own(lab: Lab) -> None:
    task = Talkative(name="widths", root=lab.task.root, recipe=lab.task.recipe)
    context = lab.context(task=task)
    assert say(context, "where", {}) == context.workspace.name


def test_a_task_cannot_replace_a_tool_of_ours(lab: Lab, task: TaskAdapter) -> None:
    for name, lineage in (("submit_trial", True), ("read_lineage", False)):
        taken = replace(task, tool_commands=(command(name, argv=("true",)),))
        with pytest.raises(Misuse, match=name):
            tools(lab.context(task=taken, lineage=lineage))


def test_a_tool_that_returns_an_object_answers_with_its_json(lab: Lab) -> None:
    async def look(_given: Mapping[str, Any]) -> Any:
        return {"width": 64, "places": [Path("recipe.py")]}

    @dataclass(kw_only=True)
    class Looking(TaskAdapter):
        def tools(self, directory: Path) -> Sequence[EngineTool]:
            return (EngineTool("look", "Look at it.", {"type": "object"}, look),)

    context = lab.context(task=Looking(name="looks", root=lab.task.root, recipe=lab.task.recipe))

    async def use() -> str:
        async with session_tools(context, engine="scripted") as offered:
            [tool] = [each for each in offered if each.name == "look"]
            return await tool.run({})

    assert json.loads(asyncio.run(use())) == {"width": 64, "places": ["recipe.py"]}
