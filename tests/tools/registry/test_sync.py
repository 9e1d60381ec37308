"""Keeping the ledger in line with the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.kernel import Misuse, NotFound
from ratchet.ledger.tools import add_version, get_tool, list_sources, promote_version
from ratchet.tools.definition import PythonBody
from tests.tools.registry.conftest import OpenHome
from tests.tools.registry.home import Home


def marks(home: Home) -> dict[str, str | None]:
    with home.ledger.read() as tx:
        return {row.name: row.mark for row in list_sources(tx, [""])}


def test_a_changed_file_is_a_new_version_and_an_unchanged_one_is_not(home: Home) -> None:
    home.python("my_tool")
    home.open()
    home.open()
    home.python("my_tool", "def run(): return 2")
    home.open()
    home.open()

    assert [each.version for each in home.versions("my_tool")] == ["1.0.0", "1.0.1"]
    assert home.events() == [
        ("tool.added", "my_tool"),
        ("tool.version", "my_tool"),
        ("tool.promoted", "my_tool"),
        ("tool.version", "my_tool"),
        ("tool.promoted", "my_tool"),
    ]


def test_a_changed_script_is_a_new_version(home: Home) -> None:
    home.write("code.py", "def run(): return 1")
    home.write("my_tool.yaml", "type: python\npython: {file: code.py}\n")
    home.open()

    home.write("code.py", "def run(): return 2")

    assert home.open().get("my_tool").tool.python == PythonBody("def run(): return 2")


def test_a_file_that_was_only_touched_leaves_a_better_version_in_use(home: Home) -> None:
    path = home.python("my_tool")
    toolbox = home.open()
    with home.ledger.write() as tx:
        row = get_tool(tx, "my_tool")
        better = toolbox.get("my_tool").tool.with_body(PythonBody("def run(): return 2"))
        version = add_version(tx, row, better.data, better.hash, origin="evolved")
        promote_version(tx, row, version, expected=row.current_id)
    before = marks(home)["my_tool"]

    os.utime(path, ns=(1, 1))
    again = home.open()

    assert again.get("my_tool").version == "1.0.1"
    assert marks(home)["my_tool"] != before


def test_a_file_that_goes_back_to_what_it_was_is_the_version_that_it_was(home: Home) -> None:
    for source in ("def run(): return 1", "def run(): return 2", "def run(): return 1"):
        home.python("my_tool", source)
        toolbox = home.open()

    assert toolbox.get("my_tool").version == "1.0.0"
    assert len(home.versions("my_tool")) == 2


@pytest.mark.parametrize(
    ("more", "version"),
    [
        ("", "1.0.1"),
        ("change_type: minor\n", "1.1.0"),
        ("change_type: major\n", "2.0.0"),
        ("version: 4.0.0\n", "4.0.0"),
    ],
)
def test_the_version_rises_as_the_file_says(home: Home, more: str, version: str) -> None:
    home.python("my_tool")
    home.open()
    home.python("my_tool", "def run(): return 2", more)

    assert home.open().get("my_tool").version == version


def test_an_input_that_callers_do_not_give_makes_it_major_and_says_so(home: Home) -> None:
    home.python("my_tool", more="input_schema: {a: {type: string}}\n")
    home.open()
    home.python("my_tool", more="input_schema: {a: {type: string, required: true}}\n")

    assert home.open().get("my_tool").version == "2.0.0"
    assert "the input a is required now" in (home.versions("my_tool")[-1].reason or "")


def test_a_deleted_file_is_a_removed_tool_and_may_come_back(home: Home) -> None:
    path = home.python("my_tool")
    home.open()
    path.unlink()

    with pytest.raises(NotFound):
        home.open().get("my_tool")
    home.python("my_tool")
    back = home.open().get("my_tool")

    assert back.version == "1.0.0"
    assert [type for type, _ in home.events()][-2:] == ["tool.removed", "tool.added"]


def test_a_file_with_another_id_is_another_tool(home: Home) -> None:
    home.write("file.yaml", "type: llm\nid: my_first\n")
    home.open()
    home.write("file.yaml", "type: llm\nid: my_second\n")

    names = {each.name for each in home.open().list()}

    assert "my_second" in names
    assert "my_first" not in names


def test_a_file_that_moves_is_the_same_tool(home: Home) -> None:
    path = home.python("my_tool")
    home.open()
    (home.path / "tools" / "sub").mkdir()
    path.rename(home.path / "tools" / "sub" / "my_tool.yaml")

    found = home.open().get("my_tool")

    assert found.version == "1.0.0"
    assert found.source.endswith("sub/my_tool.yaml")
    assert "tool.removed" not in [type for type, _ in home.events()]


def test_a_folder_that_is_not_looked_at_keeps_its_tools(home: Home, tmp_path: Path) -> None:
    home.write("my_shared.yaml", "type: llm\n", folder=tmp_path / "shared")
    with_it = {"tools.folders": str(tmp_path / "shared")}
    home.open(**with_it)

    without = home.open()

    assert "my_shared" not in {each.name for each in without.list()}
    assert home.open(**with_it).get("my_shared").version == "1.0.0"
    assert "tool.removed" not in [type for type, _ in home.events()]


def test_unchanged_files_are_not_read_again(home: Home) -> None:
    path = home.python("my_tool")
    home.open()
    seen = path.stat()
    size = len(path.read_bytes())

    # The same mark with other content: whoever reads the file finds out.
    path.write_bytes(b"x" * size)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    assert home.open().get("my_tool").version == "1.0.0"


def test_hidden_files_and_links_out_of_the_folder_are_no_tools(home: Home, tmp_path: Path) -> None:
    outside = home.write("my_outside.yaml", "type: llm\n", folder=tmp_path / "outside")
    home.write(".my_hidden.yaml", "type: llm\n")
    inside = home.write("my_inside.yaml", "type: llm\n")
    (inside.parent / "my_link.yaml").symlink_to(outside)
    (inside.parent / "folder").symlink_to(tmp_path / "outside")

    toolbox = home.open()

    assert {each.name for each in toolbox.list() if each.name.startswith("my_")} == {"my_inside"}
    with pytest.raises(Misuse, match="leads out of"):
        toolbox.get("my_link")


def test_both_databases_keep_the_same_tools(open_home: OpenHome, ledger) -> None:  # type: ignore[no-untyped-def]
    home = open_home(ledger)
    path = home.python("my_tool", more="description: naïve 漢字\n")
    home.open()
    home.python("my_tool", "def run(): return 2")
    toolbox = home.open()
    assert toolbox.get("my_tool").version == "1.0.1"
    assert toolbox.pin("my_tool", "1.0.0").tool.description == "naïve 漢字"
    assert toolbox.unpin("my_tool").version == "1.0.1"
    path.unlink()

    assert "my_tool" not in {each.name for each in home.open().list()}
