"""Opening a toolbox once more, and reading it a page at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.kernel import NotFound
from ratchet.ledger import Ledger
from ratchet.ledger.tools import Source
from ratchet.tools.definition import PythonBody, ToolType
from ratchet.tools.registry import Toolbox, open_toolbox
from ratchet.tools.sync import record_tool
from tests.tools.registry.conftest import OpenHome
from tests.tools.registry.home import Home


@pytest.fixture
def settled(home: Home) -> Toolbox:
    """Opened when everything was on record already, so that there is something to go by."""
    home.write("code.py", "def run(): return 1")
    home.write("my_file.yaml", "type: python\npython: {file: code.py}\n")
    home.python("my_tool")
    # In the place of one that comes with Ratchet.
    home.python("word_count")
    home.open()
    return home.open()


def again(home: Home, earlier: Toolbox) -> Toolbox:
    return open_toolbox(home.ledger, home.settings(), home.path, earlier=earlier)


def test_what_an_earlier_opening_has_found_out_is_used_while_nothing_changes(
    home: Home, settled: Toolbox
) -> None:
    later = again(home, settled)
    assert later._inventory is settled._inventory
    assert later.get("my_tool").version == "1.0.0"


def test_whatever_changes_after_an_earlier_opening_is_seen(home: Home, settled: Toolbox) -> None:
    home.write("code.py", "def run(): return 2")
    home.python("my_new")
    (home.path / "tools" / "my_tool.yaml").unlink()
    later = again(home, settled)
    assert later.get("my_file").tool.python == PythonBody("def run(): return 2")
    assert later.get("my_new").version == "1.0.0"
    with pytest.raises(NotFound):
        later.get("my_tool")


def test_a_tool_that_another_process_records_without_a_file_is_seen(home: Home, settled: Toolbox) -> None:
    tool = replace(settled.get("my_tool").tool, id="my_planned", folder=None)
    with home.ledger.write() as tx:
        record_tool(tx, tool, Source("planned:1", hash=tool.hash), origin="planned")
    assert again(home, settled).get("my_planned").version == "1.0.0"
    assert "my_planned" in {each.name for each in again(home, settled).page(limit=1000)}


def test_a_toolbox_of_other_places_is_not_used(home: Home, settled: Toolbox, tmp_path: Path) -> None:
    elsewhere = open_toolbox(home.ledger, home.settings(), tmp_path / "elsewhere", earlier=settled)
    assert "my_tool" not in {each.name for each in elsewhere.list()}


def test_a_page_has_the_next_tools_of_a_type_and_with_a_tag(open_home: OpenHome, ledger: Ledger) -> None:
    home = open_home(ledger)
    for name in ("a", "b", "c"):
        home.python(f"my_{name}", more="tags: ['50%_\"odd\"']\n")
    home.write("my_d.yaml", "type: llm\nllm: {prompt_template: hello}\ntags: ['50% odd']\n")
    toolbox = home.open()
    odd = '50%_"odd"'
    assert [each.name for each in toolbox.page(tag=odd, limit=2)] == ["my_a", "my_b"]
    assert [each.name for each in toolbox.page(tag=odd, after="my_b")] == ["my_c"]
    assert [each.name for each in toolbox.page(tag=odd, type=ToolType.LLM)] == []
    assert "my_d" in [each.name for each in toolbox.page(type=ToolType.LLM)]
    everything = [each.name for each in toolbox.page(limit=1000)]
    assert sorted(everything) == sorted(each.name for each in toolbox.list())
