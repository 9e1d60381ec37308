"""`ratchet tool …`: real tools in the real sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ratchet
from tests.cli.workflow_files import SPLIT, step, workflow, write

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
DOUBLE = """\
id: double
type: python
description: Twice a number.
tags: [doubling]
input_schema:
  type: object
  properties: {n: {type: number}}
  required: [n]
python:
  source: |
    def run(n):
        return {"twice": n * 2}
examples:
  - {input: {n: 2}, output: {twice: 4}}
"""


@pytest.fixture
def double(ratchet: Ratchet, tmp_path: Path) -> Path:
    """The file of a tool that was added."""
    assert ratchet("init").code == 0
    file = tmp_path / "double.yaml"
    file.write_text(DOUBLE)
    added = ratchet("tool", "add", str(file))
    assert (added.code, added.out) == (0, "double 1.0.0 is added.\n"), added.err
    return file


@ONE_DATABASE
@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (("basic_calculator", "operation=multiply", "a=7", "b=6"), {"result": 42, "operation": "multiply"}),
        (("text_formatter", "operation=reverse", "text=stressed"), {"result": "desserts"}),
        (("unit_converter", "conversion=c_to_f", "value=100"), {"result": 212.0}),
    ],
)
def test_shipped_tools_answer(ratchet: Ratchet, call: tuple[str, ...], answer: dict[str, object]) -> None:
    assert ratchet("init").code == 0
    tool, *pairs = call
    done = ratchet("tool", "run", tool, *(word for pair in pairs for word in ("--input", pair)))
    assert done.code == 0, done.err
    assert answer.items() <= done.json.items()
    assert " ms of CPU, " in done.err


@ONE_DATABASE
def test_a_tool_takes_the_text_of_a_file(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("init").code == 0
    call = ("tool", "run", "text_formatter", "--input", "operation=reverse", "--input")
    file = tmp_path / "word.txt"
    absent = ratchet(*call, f"text=@{file}")
    assert (absent.code, f"{file} cannot be read" in absent.err) == (2, True)
    file.write_text("stressed")
    assert ratchet(*call, f"text=@{file}").json["result"] == "desserts"


@pytest.mark.soak
def test_a_tool_is_called_measured_and_on_record(ratchet: Ratchet, double: Path, tmp_path: Path) -> None:
    given = tmp_path / "given.json"
    given.write_text('{"n": 4}')
    told = ratchet("tool", "run", "double", "--inputs", str(given), "--json").json
    assert (told["ok"], told["value"], told["version"]) == (True, {"twice": 8}, "1.0.0")
    assert told["metrics"]["wall_ms"] > 0
    assert told["metrics"]["exit_code"] == 0
    wrong = ratchet("tool", "run", "double", "--input", "n=four")
    assert wrong.code == 1
    assert "do not fit" in wrong.err
    shown = ratchet("tool", "show", "double", "--json").json
    assert (shown["stats"]["runs"], shown["stats"]["failures"]) == (2, 1)
    fields = ratchet("tool", "show", "double").out
    assert "n: number" in fields
    assert "50%" in fields


@pytest.mark.soak
@ONE_DATABASE
def test_what_is_not_there_is_told_with_what_to_do(ratchet: Ratchet, double: Path, tmp_path: Path) -> None:
    unknown = ratchet("tool", "run", "doubel")
    assert (unknown.code, unknown.err) == (
        1,
        "error: tool doubel does not exist\nhint: did you mean double?\n",
    )
    singer = tmp_path / "singer.yaml"
    singer.write_text(
        "type: executable\nexecutable: {command: no-such-singer, install_command: apt install singer}\n"
    )
    assert ratchet("tool", "add", str(singer)).code == 0
    absent = ratchet("tool", "run", "singer")
    assert absent.code == 3
    assert "hint: install it: apt install singer" in absent.err
    as_json = ratchet("tool", "run", "singer", "--json")
    assert (as_json.code, as_json.json["ok"], as_json.json["metrics"]["exit_code"]) == (3, False, 127)
    assert ratchet("tool", "run", "double", "--input", "n").code == 2
    assert ratchet("tool", "run", "double", "--inputs", str(tmp_path / "absent.json")).code == 2


@pytest.mark.soak
@ONE_DATABASE
def test_examples_are_tests(ratchet: Ratchet, double: Path) -> None:
    good = ratchet("tool", "test", "double")
    assert (good.code, good.out) == (0, "double 1.0.0: 1 of 1 examples passed\n")
    double.write_text(DOUBLE.replace("twice: 4", "twice: 5"))
    assert ratchet("tool", "add", str(double), "--replace").code == 0
    bad = ratchet("tool", "test", "double")
    assert bad.code == 1
    assert "example 1: $.twice is 4, not 5" in bad.out
    [told] = ratchet("tool", "test", "double", "--json").json
    assert (told["passed"], told["examples"][0]["got"]) == (False, {"twice": 4})
    none = ratchet("tool", "test", "identity")
    assert (none.code, "has no examples" in none.out) == (1, True)


@pytest.mark.soak
@ONE_DATABASE
def test_every_shipped_tool_that_needs_no_model_passes_its_examples(ratchet: Ratchet) -> None:
    assert ratchet("init").code == 0
    tested = ratchet("tool", "test", "all", "--type", "python", "--json")
    assert (tested.code, len(tested.json) > 5) == (0, True)


@pytest.mark.soak
def test_versions_are_listed_pinned_and_taken_back(ratchet: Ratchet, double: Path) -> None:
    double.write_text(
        DOUBLE.replace("n * 2", "n + n").replace("type: python\n", "type: python\nchange_type: minor\n")
    )
    refused = ratchet("tool", "add", str(double))
    assert (refused.code, "--replace" in refused.err or "double" in refused.err) == (1, True)
    assert ratchet("tool", "add", str(double), "--replace", "--json").json["version"] == "1.1.0"
    versions = ratchet("tool", "versions", "double", "--json").json
    assert [(each["version"], each["is_called"]) for each in versions] == [("1.1.0", True), ("1.0.0", False)]
    assert ratchet("tool", "versions", "double").out.splitlines()[1].split()[:2] == ["@", "1.1.0"]

    assert "pinned at 1.0.0" in ratchet("tool", "pin", "double", "1.0.0").out
    assert ratchet("tool", "run", "double", "--input", "n=1", "--json").json["version"] == "1.0.0"
    held = ratchet("tool", "rollback", "double")
    assert (held.code, "pinned" in held.err) == (1, True)
    assert ratchet("tool", "pin", "double", "9.9.9").code == 1
    assert ratchet("tool", "unpin", "double", "--json").json["version"] == "1.1.0"
    assert ratchet("tool", "rollback", "double").out == "double is back at 1.0.0.\n"
    assert ratchet("tool", "run", "double", "--version", "1.1.0", "--input", "n=1", "--json").json[
        "value"
    ] == {"twice": 2}
    nowhere = ratchet("tool", "rollback", "double")
    assert (nowhere.code, "no earlier version" in nowhere.err) == (1, True)


@pytest.mark.soak
@ONE_DATABASE
def test_a_search_explains_itself_and_takes_what_people_say_into_account(
    ratchet: Ratchet, double: Path
) -> None:
    task = ("tool", "search", "twice a number", "--tag", "doubling", "--json")
    found = ratchet(*task).json
    assert [each["tool"] for each in found] == ["double"]
    assert found[0]["fitness"] == pytest.approx(
        sum(reason["points"] for reason in found[0]["reasons"]), abs=0.1
    )
    assert "its description is" in ratchet("tool", "search", "twice a number").out
    assert ratchet("tool", "feedback", "double", "twice a number").code == 2
    assert ratchet("tool", "feedback", "double", "twice a number", "--good").code == 0
    again = ratchet(*task).json
    assert again[0]["fitness"] > found[0]["fitness"]
    assert "feedback" in {reason["part"] for reason in again[0]["reasons"]}
    assert ratchet("tool", "search", "twice a number", "--tag", "nowhere").out == ""


@ONE_DATABASE
def test_tools_are_listed_by_type_and_tag_and_broken_ones_are_told(
    ratchet: Ratchet, double: Path, home: Path
) -> None:
    listed = ratchet("tool", "list", "--tag", "doubling", "--json").json
    assert [each["tool"] for each in listed] == ["double"]
    kinds = {each["type"] for each in ratchet("tool", "list", "--type", "llm", "--json").json}
    assert kinds == {"llm"}
    (home / "tools" / "broken.yaml").write_text("type: python\n")
    told = ratchet("tool", "list")
    assert (told.code, "warning: " in told.err, "broken.yaml" in told.err) == (0, True, True)


@pytest.mark.soak
@ONE_DATABASE
def test_tools_are_listed_the_best_first(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("init").code == 0
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.yaml").write_text("type: python\npython: {source: 'def run(n): return 1 / n'}\n")
        ratchet("tool", "add", str(tmp_path / f"{name}.yaml"))
    # Three calls each, of which one, all and two go well.
    for name, good in (("a", 1), ("b", 3), ("c", 2)):
        for number in range(3):
            ratchet("tool", "run", name, "--input", f"n={int(number < good)}")
    listed = ratchet("tool", "list", "--by-score", "--json").json
    scores = {each["tool"]: round(each["score"], 2) for each in listed if each["score"] is not None}
    assert list(scores.items()) == [("b", 1.0), ("c", 0.67), ("a", 0.33)]


@pytest.mark.soak
@ONE_DATABASE
def test_a_tool_that_a_workflow_brought_is_put_among_the_others(ratchet: Ratchet, tmp_path: Path) -> None:
    spec = workflow(
        [step("split", input_mapping={"text": "inputs.text"})],
        {"split": SPLIT},
        inputs={"text": {"type": "string"}},
    )
    assert ratchet("workflow", "run", write(tmp_path, spec), "--input", "text=a b").code == 0
    assert ratchet("tool", "show", "split").code == 1
    added = ratchet("tool", "add", "--from-run", "1")
    assert added.code == 0, added.err
    assert json.loads(ratchet("tool", "run", "split", "--input", "text=a b").out) == ["a", "b"]
    assert ratchet("tool", "add", "--from-run", "1", "--tool", "nothing").code == 1
    assert ratchet("tool", "add").code == 2


@pytest.mark.soak
@ONE_DATABASE
def test_a_tool_that_a_workflow_brings_is_looked_at_called_and_pinned_by_both_names(
    ratchet: Ratchet, tmp_path: Path
) -> None:
    def spec(source: str) -> str:
        steps = [step("split", input_mapping={"text": "inputs.text"})]
        return write(tmp_path, workflow(steps, {"split": source}, inputs={"text": {"type": "string"}}))

    def run(source: str) -> object:
        return ratchet("workflow", "run", spec(source), "--input", "text=a,b c", "--json").json["outputs"]

    assert run(SPLIT) == {"split": ["a,b", "c"]}
    shown = ratchet("tool", "show", "counting/split", "--json").json
    assert (shown["tool"], shown["stats"]["runs"]) == ("counting/split", 1)
    assert ratchet("tool", "run", "counting/split", "--input", "text=x y", "--json").json["value"] == [
        "x",
        "y",
    ]
    commas = SPLIT.replace("split()", "split(',')")
    assert run(commas) == {"split": ["a", "b c"]}
    versions = ratchet("tool", "versions", "counting/split", "--json").json
    first = versions[-1]["version"]
    assert (len(versions), versions[0]["is_called"]) == (2, True)

    held = ratchet("tool", "pin", "counting/split", first)
    assert f"counting/split is pinned at {first}" in held.out
    assert run(commas) == {"split": ["a,b", "c"]}
    moved = ratchet("tool", "rollback", "counting/split")
    assert (moved.code, "ratchet tool unpin counting/split" in moved.err) == (1, True)
    assert ratchet("tool", "unpin", "counting/split").code == 0
    assert run(commas) == {"split": ["a", "b c"]}
    assert ratchet("tool", "rollback", "counting/split").out == f"counting/split is back at {first}.\n"
    absent = ratchet("tool", "show", "counting/nothing")
    assert (absent.code, "tool counting/nothing does not exist" in absent.err) == (1, True)
    assert ratchet("tool", "feedback", "counting/split", "split", "--good").code == 2


@pytest.mark.soak
@ONE_DATABASE
def test_a_tool_that_is_a_workflow_is_called_and_tested_like_any_other(
    ratchet: Ratchet, double: Path, tmp_path: Path
) -> None:
    steps = [
        {"step_id": "twice", "type": "existing_tool", "tool": "double", "input_mapping": {"n": "inputs.n"}}
    ]
    outputs = {"twice": {"source_reference": "steps.twice.output.twice"}}
    spec = {
        "workflow_id": "doubling",
        "inputs": {"n": {"type": "number"}},
        "outputs": outputs,
        "steps": steps,
    }
    tool = {
        "type": "workflow",
        "workflow": {"spec": spec},
        "examples": [{"input": {"n": 4}, "output": {"twice": 8}}],
    }
    (tmp_path / "flow.yaml").write_text(json.dumps(tool))
    assert ratchet("tool", "add", str(tmp_path / "flow.yaml")).code == 0
    assert ratchet("tool", "test", "flow").out == "flow 1.0.0: 1 of 1 examples passed\n"
    told = ratchet("tool", "run", "flow", "--input", "n=3", "--json").json
    assert (told["ok"], told["value"]) == (True, {"twice": 6})
    assert ratchet("tool", "show", "double", "--json").json["stats"]["runs"] == 2
    missing = ratchet("tool", "run", "flow")
    assert (missing.code, "Missing required input: n" in missing.err) == (1, True)
    assert ratchet("tool", "run", "flow", "--input", "n=four").code == 1


@pytest.mark.soak
@ONE_DATABASE
def test_a_tool_beside_a_workflow_is_named_by_its_file(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("init").code == 0
    (tmp_path / "tools").mkdir()
    file = tmp_path / "tools" / "by_two.yaml"
    file.write_text(DOUBLE)
    assert ratchet("tool", "test", str(file)).out == "double 1.0.0: 1 of 1 examples passed\n"
    assert ratchet("tool", "run", str(file), "--input", "n=3").json == {"twice": 6}
    file.write_text(DOUBLE.replace("n * 2", "n + n"))
    shown = ratchet("tool", "show", str(file), "--json").json
    assert (shown["tool"], shown["version"], shown["source"]) == ("double", "1.0.1", str(file))
    assert ratchet("tool", "pin", str(file), "1.0.0").code == 0
    assert ratchet("tool", "show", str(file), "--json").json["pinned"]
    assert ratchet("tool", "unpin", str(file)).code == 0
    assert "is back at 1.0.0" in ratchet("tool", "rollback", str(file)).out
    # It is that workflow's, and nobody else's.
    assert ratchet("tool", "show", "double").code != 0
    file.write_text("id: double\ntype: python\n")
    broken = ratchet("tool", "show", str(file))
    assert (broken.code, str(file) in broken.err, "python" in broken.err) == (2, True, True), broken.err
    for absent in (tmp_path / "tools" / "none.yaml", tmp_path / "double.yaml"):
        told = ratchet("tool", "show", str(absent))
        assert (told.code, "is no file of a folder `tools`" in told.err) == (2, True)


@pytest.mark.soak
@ONE_DATABASE
def test_a_tool_of_the_home_may_be_named_by_its_file_as_well(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("init").code == 0
    (tmp_path / "double.yaml").write_text(DOUBLE)
    assert ratchet("tool", "add", str(tmp_path / "double.yaml")).code == 0
    file = Path(ratchet("tool", "show", "double", "--json").json["source"])
    file.write_text(DOUBLE.replace("n * 2", "n + n"))
    assert ratchet("tool", "show", "double", "--json").json["version"] == "1.0.1"
    assert "is back at 1.0.0" in ratchet("tool", "rollback", str(file)).out
    assert ratchet("tool", "show", "double", "--json").json["version"] == "1.0.0"
