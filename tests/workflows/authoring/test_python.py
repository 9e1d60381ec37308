"""Workflows in Python: what is built of them, that they run as files do, and what is refused."""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet import RunNotCompleted, Workflow, ask, prompt, step, tool, when, workflow
from ratchet.flowkit.graph import waves
from ratchet.flowkit.reader import read_text
from ratchet.kernel import Misuse, RunStatus
from ratchet.runtime import Worker, open_ledger, open_runtime
from ratchet.workflows.files import BadWorkflow
from ratchet.workflows.python import load_python
from ratchet.workflows.saved import names_python
from tests.workflows.authoring import digest as example
from tests.workflows.authoring.digest import around, clean, count, digest, polish


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def ratchet(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", "from ratchet.cli import main; main()", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=300)


def test_calls_of_steps_build_the_graph() -> None:
    assert waves(digest.spec) == [["clean", "polish"], ["count"], ["total"], ["say", "say_2"]]
    steps = {each.step_id: each for each in digest.spec.steps}
    assert (steps["count"].for_each, steps["count"].input_mapping) == (
        "steps.clean.output",
        {"text": "item", "factor": 2},
    )
    assert (steps["count"].max_retries, steps["count"].timeout) == (2, 60)
    assert steps["say_2"].when == "(steps.total.output <= 3)"
    assert steps["polish"].repeat is not None
    assert steps["polish"].repeat.until == "last.score >= 0.75"
    assert {each.name: each.source_reference for each in digest.spec.outputs} == {
        "number": "steps.total.output",
        "high": "steps.say.output",
        "low": "steps.say_2.output",
        "draft": "steps.polish.output.text",
        "tone": "inputs.tone",
    }
    assert [(each.name, each.type, each.required) for each in digest.spec.inputs] == [
        ("messages", "array", True),
        ("tone", "string", False),
    ]


def test_types_become_schemas_and_the_source_comes_along() -> None:
    tools = digest.spec.tool_definitions
    assert tools["count"].extra["input_schema"] == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "factor": {"type": "integer"}},
        "required": ["text"],
    }
    assert tools["count"].extra["output_schema"] == {"type": "integer"}
    assert tools["polish"].extra["output_schema"]["required"] == ["text", "score"]
    module: dict[str, Any] = {}
    exec(tools["count"].source_code or "", module)
    assert module["count"]("The cat and a dog", 2) == 6


def test_it_is_written_as_json_and_read_as_the_same_workflow(tmp_path: Path) -> None:
    digest.write(tmp_path / "digest.json")

    assert read_text(digest.to_json()) == digest.spec
    assert Workflow.read(tmp_path / "digest.json").spec == digest.spec
    assert Workflow.read(json.loads(digest.to_json())).to_json() == digest.to_json()


def test_outside_of_a_workflow_a_step_is_its_function() -> None:
    assert clean([" a ", " "]) == ["a"]
    assert count.each(["a b", "the"], factor=3) == [3, 0]
    done = polish.repeat(until=lambda last: last["score"] >= 0.5, limit=3)({"text": "abc", "score": 0.0})
    assert done == {"text": "a", "score": 0.5}


@pytest.mark.soak
def test_it_runs_in_a_notebook_and_is_on_record_like_any_other(home: Path) -> None:
    async def cell() -> object:
        return digest.run(["Hello the world ", " ", "b c"])

    wanted = {"number": 8, "high": "high 8", "draft": "abc", "tone": "plain"}
    assert asyncio.run(cell()) == wanted
    told = json.loads(ratchet("workflow", "show", "1", "--json").stdout)
    assert (told["status"], told["outputs"]) == ("completed", wanted)
    assert told["steps"]["count[1]"]["metrics"]["exit_code"] == 0
    assert told["steps"]["polish"]["metrics"]["rounds"] == 3


@pytest.mark.soak
def test_a_workflow_in_a_workflow_is_a_step_and_its_results_are_known_later(home: Path) -> None:
    assert around.run(["x y"]) == 3
    assert around(["x y"]) == 3
    assert Workflow.read(json.loads(around.to_json())).run(messages=["x y"]) == 3


@pytest.mark.soak
def test_a_worker_does_what_is_submitted(home: Path) -> None:
    from ratchet.config import load_settings

    asked = digest.submit(["one two"])
    with pytest.raises(TimeoutError):
        asked.result(timeout=0.1)
    loaded = load_settings()
    with open_ledger(loaded) as ledger:
        worker = Worker(open_runtime(loaded, ledger))
        worker.start()
        try:
            assert asked.result(timeout=120)["number"] == 4
        finally:
            worker.stop(drain_seconds=0.0)
    assert asked.status is RunStatus.COMPLETED


@step
def fail(number: int) -> int:
    raise ValueError("no luck")


@workflow
def failing(number: int) -> int:
    return fail(number)


@workflow
def asking() -> int:
    size = ask("How large is {this}?", int, name="size")
    return fail(size)


@pytest.mark.soak
def test_what_does_not_end_well_is_an_error_with_its_run(home: Path) -> None:
    with pytest.raises(RunNotCompleted, match="no luck") as failed:
        failing.run(1)
    assert (failed.value.run_id, failed.value.status) == (1, RunStatus.FAILED)
    with pytest.raises(RunNotCompleted, match="waits for approval 1") as held:
        asking.run()
    assert held.value.hint is not None
    assert "approval list" in held.value.hint
    with pytest.raises(Misuse, match="number does not fit its type"):
        failing.run("many")  # type: ignore[arg-type]


def test_questions_to_people_models_and_tools_are_steps() -> None:
    @workflow
    def letters(names: list[str], tone: Literal_ = "kind") -> str:
        texts = prompt(lambda name: f"Greet {name} like {{this}}", each=names, name="greet")
        best = prompt(f"Choose one of {texts}", returns=int, model="small", temperature=0.0)
        size = ask("How large?", int, texts=texts)
        return tool("concat", parts=[texts[0], f"{best} {size} {tone}"])  # type: ignore[no-any-return]

    greet, best, size, concat = letters.spec.steps
    assert greet.prompt_template == "Greet ${item} like {{this}}"
    assert best.tool_name == "prompt"
    assert letters.spec.tool_definitions["prompt"].extra == {"output_schema": {"type": "integer"}}
    assert (size.answer_schema, size.input_mapping) == ({"type": "integer"}, {"texts": "steps.greet.output"})
    joined = "${steps.prompt.output} ${steps.ask.output} ${inputs.tone}"
    assert concat.input_mapping == {"parts": ["steps.greet.output[0]", joined]}


Literal_ = str


def test_a_condition_may_be_an_fstring_and_joined() -> None:
    @workflow
    def chosen(names: list[str]) -> int:
        number = count(names[0])
        with when((number > 1) & ~(number == 7)), when(f"'x' in {names}"):
            return count(names[1])

    assert chosen.spec.steps[1].when == (
        "((steps.count.output > 1) and (not (steps.count.output == 7))) and ('x' in ${inputs.names})"
    )


opened = io.StringIO("something that no other process can be given")


@step
def reads() -> str:
    return opened.read()


@step
def rows(count: int) -> Iterator[int]:
    """Numbers, one after the other."""
    yield from range(count)


@step
def twice(number: int) -> int:
    return number * 2


@workflow
def doubled(count: int) -> list[int]:
    return twice.each(rows(count))


def test_a_step_that_yields_streams_and_is_a_list_anywhere_else(home: Path) -> None:
    first, second = doubled.spec.steps
    assert (first.stream, second.for_each) == (True, "steps.rows.output")
    assert doubled.spec.tool_definitions["rows"].extra["output_schema"] == {
        "type": "array",
        "items": {"type": "integer"},
    }
    assert read_text(doubled.to_json()) == doubled.spec
    assert rows(3) == [0, 1, 2]
    assert doubled.run(3) == [0, 2, 4]


@step
def strange(at: Path) -> str:
    return str(at)


def test_what_cannot_be_a_step_says_why() -> None:
    with pytest.raises(Misuse, match="reads uses opened, a StringIO"):
        reads.definition  # noqa: B018 - it is made when it is asked for
    with pytest.raises(Misuse, match="strange: at is of a type that JSON does not have"):
        strange.definition  # noqa: B018
    with pytest.raises(Misuse, match="waits is async"):

        @step
        async def waits() -> None: ...

    with pytest.raises(Misuse, match="`when` is a step of a workflow"), when(f"{1} > 0"):
        pass


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (lambda _: count("inputs.other"), "would be taken for a reference"),
        (lambda names: count(names[0]) > 3, "which no step has made"),
        (lambda names: [count(name) for name in names], "so it cannot be looped over"),
        (lambda names: count("x") if names else 1, "so it cannot decide an `if`"),
        (lambda names: names.upper(), "so it cannot be called"),
        (lambda names: count(names[0]) + 1, "so it cannot be reckoned with"),
        (lambda names: "Dear " + names[0], "so it cannot be reckoned with"),
    ],
)
def test_what_python_would_decide_too_early_is_an_error(body: Any, problem: str) -> None:
    def built(names: list[str]) -> int:
        return body(names)  # type: ignore[no-any-return]

    with pytest.raises(Misuse, match=re.escape(problem)):
        workflow(built).spec  # noqa: B018


@pytest.mark.parametrize(
    ("source", "problem", "hint"),
    [
        ("import nothing_like_it", "cannot be imported: No module named 'nothing_like_it'", "module:name"),
        ("a = 1\nb = a / 0", "cannot be imported: ZeroDivisionError: division by zero", "line 2"),
        ("def broken(:", "cannot be imported: SyntaxError", ""),
        (
            "from ratchet import step, workflow\n\n@step\ndef one(x: int) -> int:\n    return x\n\n"
            "@workflow\ndef flow(x: int) -> int:\n    return one(x) + 1",
            "flow.py, line 9: steps.one.output is there only when the workflow runs, so it cannot be reckoned with",
            "",
        ),
        (
            "from ratchet import step, workflow\n\n@step\ndef one(x: int) -> int:\n    return x\n\n"
            "@workflow\ndef flow(x: int) -> int:\n    return one(x) if one(x) > 3 else x",
            "flow.py, line 9: whether steps.one.output > 3 is known only",
            "write `with when(…):`",
        ),
        (
            "from ratchet import step, workflow\n\n@step\ndef one(x: int) -> int:\n    return x\n\n"
            "@workflow\ndef flow(x: int) -> int:\n    return one(x, y=2)",
            "flow cannot be built: TypeError: got an unexpected keyword argument 'y'",
            "flow.py, line 9",
        ),
        ("flow = 1", "has no workflow flow", "it has none"),
    ],
)
def test_what_the_user_s_own_file_raises_is_named_with_its_line(
    tmp_path: Path, source: str, problem: str, hint: str
) -> None:
    (tmp_path / "flow.py").write_text(source)
    with pytest.raises(Misuse, match=re.escape(problem)) as raised:
        load_python(f"{tmp_path / 'flow.py'}:flow")
    assert hint in (raised.value.hint or "")


def test_a_workflow_that_could_not_run_names_everything() -> None:
    @workflow
    def nothing(names: list[str]) -> None: ...

    with pytest.raises(BadWorkflow, match="at least one step"):
        nothing.spec  # noqa: B018


@pytest.mark.soak
def test_the_command_line_takes_it_by_its_module(home: Path) -> None:
    named = f"{Path(example.__file__)}:digest"
    done = ratchet("workflow", "run", named, "--input", 'messages=["a b"]', "--json")
    assert json.loads(done.stdout)["outputs"]["number"] == 2, done.stderr
    assert ratchet("workflow", "validate", "tests.workflows.authoring.digest:digest").returncode == 0
    missing = ratchet("workflow", "plan", f"{Path(example.__file__)}:digst")
    assert missing.returncode == 2
    assert "it has digest, around" in missing.stderr


@pytest.mark.parametrize("named", ["digest.py", "digest.py:"])
def test_a_file_of_python_without_a_name_says_how_to_write_it(named: str) -> None:
    with pytest.raises(Misuse, match="does not say which workflow") as failed:
        names_python(named)
    assert failed.value.hint == "write its name after a colon: `digest.py:NAME`"


def test_importing_ratchet_loads_nothing_of_workflows() -> None:
    code = "import sys, ratchet; print([m for m in sys.modules if m.startswith('ratchet.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_examples_of_the_page_are_workflows(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "workflow-python.md").read_text()
    first, second = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "first_example.py").write_text(first)
    (tmp_path / "second_example.py").write_text(second)

    built = load_python(f"{tmp_path}/first_example.py:digest").spec
    assert waves(built) == [["clean"], ["count"], ["total"]]
    letters = load_python(f"{tmp_path}/second_example.py:letters").spec
    assert [each.step_id for each in letters.steps] == ["greet", "prompt", "ask", "concat"]
