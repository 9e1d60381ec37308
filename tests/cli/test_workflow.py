"""`ratchet workflow validate`, `plan`, `save`, `show`, `list` and `delete`"""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ratchet
from tests.cli.workflow_files import COUNT, counting, step, workflow, write

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@ONE_DATABASE
def test_a_good_workflow_is_valid_and_looking_at_it_makes_no_home(
    ratchet: Ratchet, tmp_path: Path, home: Path
) -> None:
    file = write(tmp_path, counting())
    assert (ratchet("workflow", "validate", file).out, home.exists()) == ("Valid\n", False)
    assert ratchet("workflow", "validate", file, "--json").json == {
        "file": file,
        "valid": True,
        "problems": [],
    }
    assert ratchet("workflow", "plan", file, "--json").json == [["split"], ["count", "longest"], ["tell"]]
    assert not home.exists()


@ONE_DATABASE
def test_a_file_with_a_byte_order_mark_is_read(ratchet: Ratchet, tmp_path: Path) -> None:
    file = tmp_path / "marked.json"
    file.write_bytes(codecs.BOM_UTF8 + json.dumps(counting()).encode())
    assert ratchet("workflow", "validate", str(file)).out == "Valid\n"


@ONE_DATABASE
def test_everything_that_is_wrong_is_told_at_once(ratchet: Ratchet, tmp_path: Path) -> None:
    wrong = workflow(
        [
            step("a", "count", input_mapping={"words": "steps.b.output"}),
            step("b", "count", input_mapping={"words": "steps.a.output"}),
            step("c", "count", input_mapping={"words": "inputs.nothing"}, depends_on=["nobody"]),
        ],
        {"count": COUNT},
        outputs={"out": {"source_reference": "steps.zzz.output"}},
    )
    told = ratchet("workflow", "validate", write(tmp_path, wrong))
    assert told.code == 1
    assert "a → b → a" in told.out
    for word in ("nothing", "nobody", "zzz"):
        assert word in told.out
    assert f"{len(told.out.splitlines())} problems" in told.err
    as_json = ratchet("workflow", "validate", write(tmp_path, wrong), "--json")
    assert (as_json.code, as_json.json["valid"]) == (1, False)
    assert as_json.json["problems"] == told.out.splitlines()


@ONE_DATABASE
def test_a_broken_file_names_the_line_and_an_absent_one_is_misuse(ratchet: Ratchet, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("workflow_id: x\nsteps: [\n")
    told = ratchet("workflow", "validate", str(broken))
    assert (told.code, "line" in told.out) == (1, True)
    absent = ratchet("workflow", "validate", str(tmp_path / "absent.yaml"))
    assert (absent.code, absent.out) == (2, "")
    assert "there is no file" in absent.err
    assert ratchet("workflow", "validate").code == 2
    for command in ("plan", "run"):
        assert ratchet("workflow", command, str(tmp_path / "absent.yaml")).code == 2


@ONE_DATABASE
def test_a_tool_that_is_yet_to_be_written_is_refused_by_validate_as_by_run(
    ratchet: Ratchet, tmp_path: Path
) -> None:
    """With a ledger and without one."""
    asks = {"step_id": "shout", "type": "python_tool", "generate_tool": True, "description": "Shouts."}
    file = write(tmp_path, workflow([{**asks, "input_mapping": {"text": "hi"}}], {}))
    problem = "step shout: its tool has not been written yet; `ratchet workflow fill FILE` has it written"
    assert ratchet("workflow", "validate", file).out == f"{problem}\n"
    assert problem in ratchet("workflow", "run", file).err
    assert ratchet("workflow", "validate", file).out == f"{problem}\n"


@ONE_DATABASE
def test_what_is_not_ascii_is_printed_as_it_is_and_what_steers_a_terminal_is_not(
    ratchet: Ratchet, tmp_path: Path
) -> None:
    names = {"step_id": "names", "type": "python_tool", "tool": "names"}
    source = "def run():\n    return ['M\\u00fcnchen', '\\u65e5\\u672c', '\\x9b31m', '\\u202e']\n"
    spec = workflow([names], {"names": {"type": "python", "source_code": source}})
    spec["outputs"] = {"names": "steps.names.output"}
    ran = ratchet("workflow", "run", write(tmp_path, spec))
    assert "München" in ran.out
    assert "日本" in ran.out
    assert "\\u009b31m" in ran.out
    assert "\\u202e" in ran.out
    shown = ratchet("workflow", "show", "1")
    assert shown.out.splitlines()[1].split()[:2] == ["names", "completed"]
    assert "München" in shown.out


@ONE_DATABASE
def test_the_schema_of_the_format_is_printed(ratchet: Ratchet) -> None:
    schema = ratchet("workflow", "validate", "--schema").json
    assert schema["title"] == "Workflow"
    assert "step" in schema["$defs"]


@ONE_DATABASE
def test_where_there_is_a_ledger_tools_must_exist(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("init").code == 0
    file = write(tmp_path, workflow([step("a", "word_cuont", type="existing_tool")], portable=False))
    told = ratchet("workflow", "validate", file)
    assert (told.code, "word_cuont" in told.out) == (1, True)


@ONE_DATABASE
def test_a_constant_of_the_wrong_type_is_refused_before_a_run(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("init").code == 0

    def validated(text: object) -> str:
        count = step("a", "word_count", type="existing_tool", input_mapping={"text": text})
        return ratchet("workflow", "validate", write(tmp_path, workflow([count], portable=False))).out

    assert "step a: the inputs of tool word_count do not fit" in validated(7)
    assert "step a: the inputs of tool word_count do not fit" in validated(["seven"])
    assert "do not fit" not in validated("seven")
    file = write(
        tmp_path, workflow([step("a", "word_count", type="existing_tool", input_mapping={"text": 7})])
    )
    assert "do not fit" in ratchet("workflow", "run", file).err


@ONE_DATABASE
def test_the_plan_of_old_files_has_the_waves_that_they_mean(ratchet: Ratchet, tmp_path: Path) -> None:
    spec = workflow(
        [
            step("load_data", "t", input_mapping={"path": "${inputs.csv_file}"}, output_name="data"),
            step("analyze_data", "t", input_mapping={"data": "steps.load_data.data"}, parallel_group=1),
            step(
                "create_visualization", "t", input_mapping={"data": "steps.load_data.data"}, parallel_group=1
            ),
            step("generate_insights", "t", depends_on=["analyze_data", "create_visualization"]),
        ],
        {"t": COUNT},
        inputs={"csv_file": {"type": "string"}},
    )
    assert ratchet("workflow", "plan", write(tmp_path, spec), "--json").json == [
        ["load_data"],
        ["analyze_data", "create_visualization"],
        ["generate_insights"],
    ]
    grouped = [step("p", "t", parallel_group=1), step("x", "t"), step("q", "t", parallel_group=1)]
    waves = ratchet("workflow", "plan", write(tmp_path, workflow(grouped, {"t": COUNT})), "--json").json
    assert [sorted(wave) for wave in waves] == [["p", "q", "x"]]


@ONE_DATABASE
def test_a_person_is_shown_what_each_step_calls_and_waits_for(ratchet: Ratchet, tmp_path: Path) -> None:
    spec = counting()
    spec["steps"][3] |= {"when": "steps.count.output > 1", "for_each": ["x"]}
    spec["inputs"]["mode"] = {"type": "string", "required": False, "default": "fast"}
    told = ratchet("workflow", "plan", write(tmp_path, spec)).out.splitlines()
    assert told[:3] == [
        "counting 1.0.0: Count the words of a text.",
        'takes text: string, mode: string = "fast"',
        "gives told",
    ]
    assert told[4].split() == ["wave", "step", "calls", "after", "only"]
    assert told[6].split() == ["2", "count", "count", "split", "-"]
    assert told[8].split(maxsplit=5) == [
        "3",
        "tell",
        "tell",
        "count,",
        "longest",
        'for each of ["x"], if steps.count.output > 1',
    ]


@pytest.mark.soak
def test_a_workflow_is_saved_shown_listed_and_deleted(ratchet: Ratchet, tmp_path: Path) -> None:
    assert ratchet("init").code == 0
    assert "workflow new" in ratchet("workflow", "list").err
    file = write(tmp_path, counting())
    saved = ratchet("workflow", "save", file, "--name", "words", "--json")
    assert (saved.code, saved.json["name"], saved.json["steps"]) == (0, "words", 4)
    assert ratchet("workflow", "save", file, "--name", "words", "--json").json == saved.json
    shown = ratchet("workflow", "show", "words", "--json").json
    assert shown["waves"] == [["split"], ["count", "longest"], ["tell"]]
    assert (shown["spec"]["workflow_id"], shown["runs"]) == ("words", [])
    assert "split → count, longest → tell" in ratchet("workflow", "show", "words").out
    assert ratchet("workflow", "plan", "words", "--json").json == shown["waves"]
    [listed] = ratchet("workflow", "list", "--json").json["workflows"]
    assert (listed["name"], listed["last_run"]) == ("words", None)
    assert ratchet("workflow", "list").out.splitlines()[1].split()[:3] == ["words", "1.0.0", "4"]

    unasked = ratchet("workflow", "delete", "words")
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    assert ratchet("workflow", "delete", "words", "--yes").out == "words is deleted.\n"
    gone = ratchet("workflow", "show", "words")
    assert (gone.code, "workflow words does not exist" in gone.err) == (1, True)
    assert ratchet("workflow", "delete", "words", "--yes").code == 1


@ONE_DATABASE
@pytest.mark.parametrize(
    "wrong",
    [
        {"step_id": "a", "type": "python_tool", "tool_path": "beside.py"},
        {"step_id": "a", "type": "sub_workflow", "workflow_path": "inner.yaml"},
    ],
)
def test_what_leads_to_files_is_not_saved(ratchet: Ratchet, tmp_path: Path, wrong: dict[str, Any]) -> None:
    assert ratchet("init").code == 0
    refused = ratchet("workflow", "save", write(tmp_path, workflow([wrong], portable=False)))
    assert (refused.code, "a file beside the workflow" in refused.err) == (1, True)
    assert ratchet("workflow", "list", "--json").json["workflows"] == []


@ONE_DATABASE
def test_a_number_that_is_no_run_of_a_workflow_is_not_shown(ratchet: Ratchet) -> None:
    assert ratchet("init").code == 0
    assert ratchet("workflow", "show", "7").code == 1
    assert ratchet("workflow", "show", "9" * 30).code == 2
