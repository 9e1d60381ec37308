"""Finding tools by their ids, and holding them at a version."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import Conflict, Misuse, NotFound
from ratchet.ledger.tools import add_version, get_tool, promote_version, refuse_version, roll_back
from ratchet.tools.definition import PythonBody, read_tool
from ratchet.tools.registry import Toolbox
from tests.tools.registry.home import Home


def test_a_tool_of_the_home_is_found_with_its_version(home: Home) -> None:
    home.python("my_tool")

    found = home.open().get("my_tool")

    assert (found.name, found.version, found.tool.python) == (
        "my_tool",
        "1.0.0",
        PythonBody("def run(): return 1\n"),
    )
    assert found.hash == found.tool.hash
    assert found.tool.folder == (home.path / "tools").resolve()


def test_tools_of_the_settings_and_of_the_caller_are_found(home: Home, tmp_path: Path) -> None:
    shared, flow = tmp_path / "shared", tmp_path / "flow"
    home.write("deep/my_shared.yaml", "type: llm\n", folder=shared)
    home.write("my_own.yaml", "type: llm\n", folder=flow / "tools")
    home.write("docker-compose.yaml", "services: {}\n", folder=flow)

    toolbox = home.open(flow, **{"tools.folders": f"{shared}:{tmp_path / 'nowhere'}"})

    assert {"my_shared", "my_own"} <= {each.name for each in toolbox.list()}
    assert list(toolbox.broken) == []


def test_tools_beside_one_workflow_are_not_those_beside_another(home: Home, tmp_path: Path) -> None:
    for name in ("one", "two"):
        home.write("my_own.yaml", f"type: llm\ndescription: {name}\n", folder=tmp_path / name / "tools")

    first, second = home.open(tmp_path / "one"), home.open(tmp_path / "two")

    assert first.get("my_own").tool.description == "one"
    assert second.get("my_own").tool.description == "two"
    assert first.get("my_own").version == second.get("my_own").version == "1.0.0"
    with pytest.raises(NotFound):
        home.open().get("my_own")


def test_an_id_that_is_not_there_is_an_error_that_names_near_ones(toolbox: Toolbox) -> None:
    with pytest.raises(NotFound, match="basic_calculater") as error:
        toolbox.get("basic_calculater")

    assert "basic_calculator" in str(error.value.hint)


def test_a_version_that_is_not_there_is_an_error_that_lists_those_that_are(toolbox: Toolbox) -> None:
    with pytest.raises(NotFound) as error:
        toolbox.get("basic_calculator", "9.9.9")

    assert error.value.hint == "there are 1.0.0"


@pytest.mark.soak
def test_a_pin_is_what_is_called(home: Home) -> None:
    home.python("my_tool")
    home.open()
    home.python("my_tool", "def run(): return 2")
    toolbox = home.open()

    pinned = toolbox.pin("my_tool", "1.0.0")
    home.python("my_tool", "def run(): return 3")
    later = home.open().get("my_tool")

    assert (pinned.version, pinned.pinned) == (later.version, later.pinned) == ("1.0.0", True)
    assert [each.version for each in home.versions("my_tool")] == ["1.0.0", "1.0.1", "1.0.2"]
    with pytest.raises(Conflict, match=r"pinned at 1\.0\.0, so 1\.0\.1 is not used"):
        toolbox.get("my_tool", "1.0.1")
    assert toolbox.unpin("my_tool").version == "1.0.2"
    assert toolbox.get("my_tool", "1.0.1").version == "1.0.1"


def test_pinning_a_version_that_is_not_there_changes_nothing(toolbox: Toolbox) -> None:
    with pytest.raises(NotFound):
        toolbox.pin("basic_calculator", "3.0.0")

    assert not toolbox.get("basic_calculator").pinned


def test_a_refused_version_is_not_given_out(home: Home) -> None:
    home.python("my_tool")
    toolbox = home.open()
    with home.ledger.write() as tx:
        row = get_tool(tx, "my_tool")
        variant = toolbox.get("my_tool").tool.with_body(PythonBody("def run(): return 9"))
        version = add_version(tx, row, variant.data, variant.hash)
        refuse_version(tx, row, version, "wrong answers")

    with pytest.raises(Conflict, match="wrong answers"):
        toolbox.get("my_tool", "1.0.1")


def test_what_another_process_promotes_is_used_at_once(home: Home) -> None:
    home.python("my_tool")
    toolbox = home.open()
    with home.ledger.write() as tx:
        row = get_tool(tx, "my_tool")
        better = toolbox.get("my_tool").tool.with_body(PythonBody("def run(): return 2"))
        version = add_version(tx, row, better.data, better.hash, origin="evolved", parent_id=row.current_id)
        promote_version(tx, row, version, expected=row.current_id)

    assert toolbox.get("my_tool").tool.python == PythonBody("def run(): return 2")
    with home.ledger.write() as tx:
        roll_back(tx, get_tool(tx, "my_tool"), reason="it was not better")
    assert toolbox.get("my_tool").tool.python == PythonBody("def run(): return 1\n")
    with home.ledger.write() as tx, pytest.raises(Conflict, match="no earlier version"):
        roll_back(tx, get_tool(tx, "my_tool"))


def test_a_bad_file_is_listed_with_its_reason_and_hides_no_other(home: Home) -> None:
    home.python("my_good")
    bad = home.write("my_bad.yaml", "type: python\n")

    toolbox = home.open()

    [broken] = toolbox.broken
    assert (broken.name, broken.files) == ("my_bad", (str(bad),))
    assert "python.source" in broken.reason
    assert "my_good" in {each.name for each in toolbox.list()}
    with pytest.raises(Misuse, match=r"my_bad cannot be used: .*my_bad\.yaml: python\.source"):
        toolbox.get("my_bad")


def test_a_tool_whose_file_goes_bad_is_not_used_as_it_was(home: Home) -> None:
    home.python("my_tool")
    home.open()
    home.write("my_tool.yaml", "type: [")

    toolbox = home.open()

    with pytest.raises(Misuse, match="not YAML"):
        toolbox.get("my_tool")
    assert "my_tool" not in {each.name for each in toolbox.list()}


def test_a_pinned_version_is_used_whatever_is_wrong_with_the_file(home: Home) -> None:
    home.python("my_tool")
    home.open().pin("my_tool", "1.0.0")
    home.write("my_tool.yaml", "type: [")

    assert home.open().get("my_tool").version == "1.0.0"


def test_two_files_of_one_id_are_an_error_that_names_both(home: Home) -> None:
    one = home.write("a/my_tool.yaml", "type: llm\n")
    other = home.write("b/my_tool.yaml", "type: llm\ndescription: other\n")
    third = home.write("c/third.yaml", "type: llm\nid: my_tool\n")

    with pytest.raises(Misuse, match="defined more than once") as error:
        home.open().get("my_tool")

    assert all(str(path) in str(error.value) for path in (one, other, third))


def test_a_file_takes_the_place_of_a_tool_that_is_shipped(home: Home) -> None:
    path = home.python("word_count", "def run(): return 'mine'")

    mine = home.open().get("word_count")
    path.unlink()
    shipped = home.open().get("word_count")

    assert mine.source == str(path)
    assert shipped.source == "shipped:word_count.yaml"
    assert shipped.tool.examples


def test_the_tools_of_a_server_are_kept_while_it_is_configured(home: Home) -> None:
    listed = [
        read_tool(
            {"type": "mcp", "mcp": {"server": "files", "tool": name}}, folder=None, id=f"mcp_files_{name}"
        )
        for name in ("read", "write")
    ]
    configured = {"tools.mcp.files.argv": "some-server"}

    taken = home.open(**configured).take_server_tools("files", listed)
    fewer = home.open(**configured)
    fewer.take_server_tools("files", listed[:1])

    assert [each.name for each in taken] == ["mcp_files_read", "mcp_files_write"]
    assert {each.name for each in fewer.list() if each.name.startswith("mcp_")} == {"mcp_files_read"}
    assert not any(each.name.startswith("mcp_") for each in home.open().list())
