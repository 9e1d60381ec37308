"""What a definition means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratchet.kernel.semver import Bump
from ratchet.tools.definition import (
    ExecutableBody,
    LlmBody,
    McpBody,
    OpenApiBody,
    PythonBody,
    Tool,
    ToolType,
    read_tool,
)
from ratchet.tools.definition_file import ToolError
from ratchet.tools.sources import read_tool_file


def tool(folder: Path | None = None, /, **data: Any) -> Tool:
    return read_tool(data, folder=folder, id="mine")


def problems(folder: Path | None = None, /, **data: Any) -> list[str]:
    with pytest.raises(ToolError) as error:
        tool(folder, **data)
    return error.value.problems


def test_everything_of_an_old_file_is_read() -> None:
    read = tool(
        name="Mine",
        type="llm",
        description="does it",
        tags=["a", "b", "a"],
        cost_tier="very-high",
        speed_tier="very-fast",
        quality_tier="excellent",
        max_output_length="short",
        priority=100,
        version="1.2.3",
        change_type="minor",
        breaking_changes=["no more x"],
        track_usage=False,
        input_schema={"text": "str - what to do"},
        output_schema={"type": "string"},
        examples=[{"input": {"text": "x"}, "output": "y"}],
        constraints={"max_calls_per_hour": 5, "max_memory_mb": 64, "max_db_size_mb": 10},
        llm={"tier": "code.fast", "role": "writer", "prompt_template": "{text}", "temperature": 0.3},
    )

    assert (read.name, read.tags, read.priority, read.version) == ("Mine", ("a", "b"), 100, "1.2.3")
    assert (read.cost_tier, read.speed_tier, read.quality_tier) == ("very-high", "very-fast", "excellent")
    assert (read.change_type, read.breaking_changes, read.track_usage) == (Bump.MINOR, ("no more x",), False)
    assert (read.constraints.max_calls_per_hour, read.constraints.max_memory_mb) == (5, 64)
    assert read.llm == LlmBody(role="writer", tier="code.fast", prompt_template="{text}", temperature=0.3)
    assert read.warnings == ()


def test_the_additions_are_read() -> None:
    read = tool(
        type="python",
        python={"source": "def run(): ...", "entry": "run"},
        network=True,
        timeout=7,
        requirements=["attrs==24.1"],
        fallback_tool="other",
    )

    assert read.python == PythonBody("def run(): ...")
    assert (read.network, read.timeout, read.requirements) == (True, 7.0, ("attrs==24.1",))
    assert read.fallback_tool == "other"
    assert not read.cache, "what the network says may be different the next time"


def test_the_id_is_the_name_of_the_file_unless_it_says_another(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("type: llm\n")
    (tmp_path / "two.yaml").write_text("type: llm\nid: zwei\n")

    assert read_tool_file(tmp_path / "one.yaml").id == "one"
    assert read_tool_file(tmp_path / "two.yaml").id == "zwei"


def test_a_byte_order_mark_is_not_part_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_bytes(b"\xef\xbb\xbftype: llm\n")

    assert read_tool_file(tmp_path / "one.yaml").type is ToolType.LLM


def test_unknown_keys_are_kept_and_told() -> None:
    read = tool(type="llm", llm={"mood": "good"}, mantra="fast", category="x")

    assert read.extra == {"mantra": "fast", "category": "x"}
    assert read.llm is not None
    assert read.llm.extra == {"mood": "good"}
    assert read.warnings == ("mantra: not a key that is used", "category: not a key that is used")


def test_everything_that_is_wrong_is_told_with_its_key() -> None:
    found = problems(
        type="python",
        tags={"a": 1},
        timeout=-1,
        network="maybe",
        change_type="huge",
        constraints={"max_memory_mb": "much"},
        input_schema={"type": "object", "properties": 3},
        python={"entry": "not a name"},
    )

    assert {line.partition(":")[0] for line in found} == {
        "tags",
        "timeout",
        "network",
        "change_type",
        "constraints.max_memory_mb",
        "input_schema",
        "python.source",
        "python.entry",
    }


def test_a_problem_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("type: python\n")

    with pytest.raises(ToolError, match=r"bad\.yaml: python\.source: it is missing"):
        read_tool_file(tmp_path / "bad.yaml")


@pytest.mark.parametrize("word", ["custom", "function", "database", "message_queue", "stream_producer"])
def test_a_type_that_is_only_a_label_is_read_and_says_why_it_cannot_be_called(word: str) -> None:
    read = tool(type=word, custom={"module": "src.x"})

    assert read.refusal is not None
    assert "mine" in read.refusal


@pytest.mark.parametrize("word", ["", "bogus", "LLM tool"])
def test_a_type_that_nobody_knows_is_an_error(word: str) -> None:
    assert problems(type=word)[0].startswith("type: ")


@pytest.mark.parametrize("id", ["", "../up", "a b", "a/b", "x" * 200, ".hidden"])
def test_an_id_that_could_be_a_path_is_refused(id: str) -> None:
    with pytest.raises(ToolError, match="id: "):
        read_tool({"type": "llm"}, folder=None, id=id)


@pytest.mark.parametrize(
    ("written", "meant"), [("1.2.3", "1.2.3"), (1.0, "1.0.0"), (2, "2.0.0"), ("v1.4", "1.4.0")]
)
def test_a_version_may_be_short(written: object, meant: str) -> None:
    assert tool(type="llm", version=written).version == meant


def test_a_version_that_is_none_is_told_and_left_out() -> None:
    read = tool(type="llm", version="latest")

    assert read.version is None
    assert read.warnings == ("version: 'latest' is not three numbers, so it is left out",)


def test_other_words_for_tiers_are_understood_or_told() -> None:
    assert tool(type="llm", speed_tier="instant").speed_tier == "very-fast"
    assert tool(type="llm", speed_tier="Very Fast").speed_tier == "very-fast"
    odd = tool(type="llm", speed_tier="warp")
    assert (odd.speed_tier, len(odd.warnings)) == (None, 1)


def test_the_code_of_a_python_tool_is_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def run(): return 1")

    first = tool(tmp_path, type="python", python={"file": "code.py"})
    (tmp_path / "code.py").write_text("def run(): return 2")
    second = tool(tmp_path, type="python", python={"file": "code.py"})

    assert first.python == PythonBody("def run(): return 1")
    assert first.hash != second.hash


def test_the_script_of_a_program_is_part_of_it(tmp_path: Path) -> None:
    body = {"command": "python", "args": ["{tool_dir}/x.py", "{prompt}"], "install_command": "pip install x"}
    (tmp_path / "x.py").write_text("1")

    first = tool(tmp_path, type="executable", executable=body)
    (tmp_path / "x.py").write_text("2")

    assert first.executable is not None
    assert first.executable.args == ("{tool_dir}/x.py", "{prompt}")
    assert list(first.executable.files) == ["x.py"]
    assert tool(tmp_path, type="executable", executable=body).hash != first.hash


def test_a_script_named_from_the_root_of_an_old_project_is_found_beside_the_definition(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "executable"
    folder.mkdir()
    (folder / "buffer.py").write_text("1")

    read = tool(
        folder, type="executable", executable={"command": "python", "args": ["tools/executable/buffer.py"]}
    )

    assert read.executable is not None
    assert read.executable.args == ("{tool_dir}/buffer.py",)
    assert len(read.warnings) == 1


def test_a_program_without_command_or_script_cannot_be_used(tmp_path: Path) -> None:
    assert problems(type="executable")[0].startswith("executable.command: it is missing")
    body = {"command": "python", "args": ["{tool_dir}/gone.py"]}
    assert "gone.py cannot be read" in problems(tmp_path, type="executable", executable=body)[0]


def test_a_command_without_arguments_may_hold_them() -> None:
    read = tool(type="executable", executable={"command": "tr 'a b' c"})

    assert read.executable == ExecutableBody("tr", ("a b", "c"))


def test_the_time_limit_of_an_old_program_is_that_of_the_tool() -> None:
    assert tool(type="executable", executable={"command": "true", "timeout": 60}).timeout == 60


def test_a_service_has_its_description_from_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('\ufeff{"paths": {"/a": {}}}', "utf-8")

    from_file = tool(tmp_path, type="openapi", openapi={"spec_path": "spec.json"}, code_template="x = 1")
    inline = tool(type="openapi", openapi={"spec_dict": {"paths": {"/a": {}}}})
    named = tool(type="api", openapi={"base_url": "https://example.org"})

    assert from_file.openapi == OpenApiBody(spec={"paths": {"/a": {}}}, code_template="x = 1")
    assert inline.openapi == OpenApiBody(spec={"paths": {"/a": {}}})
    assert named.network
    assert problems(type="openapi")[0].startswith("openapi.base_url: it is missing")


def test_an_mcp_server_is_read() -> None:
    read = tool(
        type="mcp",
        mcp={
            "server_name": "time",
            "command": "npx",
            "args": ["-y", "x"],
            "env": {"A": 1},
            "auto_start": True,
        },
        capabilities=[{"name": "now"}],
    )

    assert read.mcp == McpBody(
        "time", command="npx", args=("-y", "x"), env={"A": "1"}, capabilities=({"name": "now"},)
    )


def test_a_workflow_is_read_from_its_file_or_in_place(tmp_path: Path) -> None:
    (tmp_path / "flow.json").write_text('{"workflow_id": "w", "steps": []}')

    from_file = tool(tmp_path, type="workflow", workflow={"path": "flow.json"})
    in_place = tool(type="workflow", workflow={"workflow_id": "w", "steps": []})

    assert from_file.workflow == in_place.workflow
    assert problems(type="workflow")[0].startswith("workflow.spec: it is missing")


def test_examples_are_read_as_old_files_write_them() -> None:
    read = tool(
        type="llm",
        examples=[
            {"inputs": {"a": 1}, "output": '{"b": 2}', "description": "as printed"},
            {"input": '{"a": 2}', "expected": "plain text"},
            {"input": {"a": 3}},
            {"operation": "only a note"},
            "text",
        ],
    )

    assert [(each.input, each.output, each.checked) for each in read.examples] == [
        ({"a": 1}, {"b": 2}, True),
        ({"a": 2}, "plain text", True),
        ({"a": 3}, None, False),
    ]
    assert read.extra["notes_on_use"] == [{"operation": "only a note"}, "text"]
    assert "examples: 2 have no input, so they cannot be run" in read.warnings


def test_an_old_chain_of_fallbacks_gives_the_first() -> None:
    assert tool(type="llm", fallback={"tools": ["nmt", "other"]}).fallback_tool == "nmt"


def test_the_hash_does_not_depend_on_the_order_of_keys_or_on_the_folder(tmp_path: Path) -> None:
    one = read_tool({"type": "llm", "name": "x", "tags": ["a"]}, folder=tmp_path, id="t")
    other = read_tool({"tags": ["a"], "name": "x", "type": "llm"}, folder=None, id="t")

    assert one.hash == other.hash
    assert one == other
