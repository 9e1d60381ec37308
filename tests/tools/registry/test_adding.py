"""Putting definitions into the home."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import Conflict
from ratchet.tools.definition import read_tool
from ratchet.tools.definition_file import ToolError
from ratchet.tools.registry import Toolbox
from tests.tools.registry.home import Home


def test_a_file_is_copied_with_the_script_that_it_names(home: Home, toolbox: Toolbox, tmp_path: Path) -> None:
    body = "{command: python, args: ['{tool_dir}/lib/x.py']}"
    source = home.write("my_prog.yaml", f"type: executable\nexecutable: {body}\n", folder=tmp_path / "work")
    home.write("lib/x.py", "print(1)", folder=tmp_path / "work")

    added = toolbox.add(source)
    source.unlink()

    assert added.tool.folder == (home.path / "tools" / "my_prog").resolve()
    assert (home.path / "tools" / "my_prog" / "lib" / "x.py").read_text() == "print(1)"
    assert home.open().get("my_prog").hash == added.hash


def test_a_tool_that_was_made_is_kept(home: Home, toolbox: Toolbox) -> None:
    tool = read_tool({"type": "python", "python": "def run(): return 1"}, folder=None, id="my_made")

    added = toolbox.add(tool)

    assert added.hash == tool.hash
    assert home.open().get("my_made").tool == tool


def test_an_id_that_is_taken_is_an_error_that_names_both_files(
    home: Home, toolbox: Toolbox, tmp_path: Path
) -> None:
    first = home.python("my_tool")
    second = home.write("my_tool.yaml", "type: llm\n", folder=tmp_path / "work")

    with pytest.raises(Conflict) as error:
        toolbox.add(second)

    assert str(first) in str(error.value)
    assert str(second.resolve()) in str(error.value)
    assert toolbox.get("my_tool").tool.type == "python"


def test_one_of_the_home_can_be_replaced_and_that_is_a_new_version(
    home: Home, toolbox: Toolbox, tmp_path: Path
) -> None:
    home.python("my_tool")
    home.open()
    second = home.write(
        "my_tool.yaml", "type: python\npython: 'def run(): return 2'\n", folder=tmp_path / "work"
    )

    added = toolbox.add(second, replace=True)

    assert added.version == "1.0.1"
    assert list((home.path / "tools").iterdir()) == [home.path / "tools" / "my_tool.yaml"]


def test_one_of_another_folder_is_not_replaced(home: Home, tmp_path: Path) -> None:
    home.write("my_tool.yaml", "type: llm\n", folder=tmp_path / "shared")
    toolbox = home.open(**{"tools.folders": str(tmp_path / "shared")})

    with pytest.raises(Conflict, match="shared"):
        toolbox.add(read_tool({"type": "llm"}, folder=None, id="my_tool"), replace=True)


def test_a_bad_definition_leaves_nothing_behind(home: Home, toolbox: Toolbox, tmp_path: Path) -> None:
    bad = home.write("my_bad.yaml", "type: python\n", folder=tmp_path / "work")

    with pytest.raises(ToolError, match=r"python\.source"):
        toolbox.add(bad)

    assert not (home.path / "tools").exists()
