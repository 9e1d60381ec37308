"""Definitions that somebody wrote to do harm, or that are not definitions at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.tools.definition import read_tool
from ratchet.tools.definition_file import ToolError
from ratchet.tools.sources import read_tool_file


def refused(folder: Path, content: str | bytes) -> str:
    path = folder / "hostile.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ToolError) as error:
        read_tool_file(path)
    assert error.value.file == str(path)
    return error.value.problems[0]


def laughs(levels: int) -> str:
    more = [f"a{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * 9)}]" for level in range(levels)]
    return "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *more])


def merges(levels: int) -> str:
    more = [
        f"a{level + 1}: &a{level + 1} {{<<: [{', '.join([f'*a{level}'] * 9)}]}}" for level in range(levels)
    ]
    return "\n".join(["a0: &a0 {x: 1}", *more])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (laughs(9), "more than 50,000 values"),
        (merges(9), "more than 50,000 values"),
        ("a: &a [*a]", "more than 50,000 values"),
        ("[" * 100_000, "more than 50 deep"),
        ("- " * 100_000, "more than 50 deep"),
        ("x: !!python/object/apply:os.system ['true']", "not YAML"),
        ("x: !!python/name:os.system", "not YAML"),
        ("x: !mine 1", "not YAML"),
        ("x: " + ":".join(["1"] * 100_000), "too long for a number"),
        ("x: " + "9" * 5_000, "too long for a number"),
        ("type: llm\npriority: .inf", "not a number that JSON has"),
        ("x: !!binary aGVsbG8=", "bytes"),
        ("? [1, 2]\n: x", "not YAML"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("a: \x00", "not YAML"),
        ("just text", "not a table"),
        ("- a list", "not a table"),
        ("", "not a table"),
        ("type: llm\nname: [", "not YAML"),
        (b"type: llm\nname: \xff\xfe", "not UTF-8"),
        ("# " + "x" * 1_100_000, "larger than"),
    ],
)
def test_it_is_refused_in_words(tmp_path: Path, content: str | bytes, told: str) -> None:
    assert told in refused(tmp_path, content)


def test_a_file_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("type: llm\n")
    inner = tmp_path / "tools"
    inner.mkdir()
    (inner / "link.yaml").symlink_to(tmp_path / "secret.yaml")

    with pytest.raises(ToolError, match="leads out of"):
        read_tool_file(inner / "link.yaml", within=inner)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")

    with pytest.raises(ToolError, match="not a file"):
        read_tool_file(tmp_path / "pipe.yaml")


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "link", "sub/../../secret", "{tool_dir}/../secret", ""]
)
@pytest.mark.parametrize(
    ("type", "table", "key"),
    [
        ("python", "python", "file"),
        ("workflow", "workflow", "path"),
        ("openapi", "openapi", "spec_path"),
    ],
)
def test_files_outside_of_the_folder_are_out_of_reach(
    tmp_path: Path, type: str, table: str, key: str, path: str
) -> None:
    (tmp_path / "secret").write_text("{}")
    folder = tmp_path / "tools"
    (folder / "sub").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret")

    with pytest.raises(ToolError) as error:
        read_tool({"type": type, table: {key: path}}, folder=folder, id="x")

    assert error.value.problems[0].startswith(f"{table}.")


@pytest.mark.parametrize("path", ["{tool_dir}/../secret", "{tool_dir}//etc/passwd", "{tool_dir}/link"])
def test_a_script_outside_of_the_folder_is_out_of_reach(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")

    with pytest.raises(ToolError, match=r"executable\.args: "):
        read_tool(
            {"type": "executable", "executable": {"command": "cat", "args": [path]}}, folder=folder, id="x"
        )


def test_a_definition_without_a_folder_names_no_files() -> None:
    with pytest.raises(ToolError, match="without a folder"):
        read_tool({"type": "python", "python": {"file": "x.py"}}, folder=None, id="x")
