"""Finding tools by what they are for."""

from __future__ import annotations

import contextlib

import pytest

from ratchet.ledger.tools import CallRow, record_calls
from ratchet.memory import FILE_NAME, Memory, open_memory
from ratchet.tools.definition import ToolType
from ratchet.tools.registry import Toolbox, ToolVersion
from ratchet.tools.search import ToolChoice
from tests.tools.registry.home import Home


def ids(found: list[ToolChoice]) -> list[str]:
    return [each.tool.id for each in found]


def points(choice: ToolChoice) -> dict[str, float]:
    return {part.name: round(part.points, 6) for part in choice.parts}


def only(toolbox: Toolbox, text: str, id: str) -> ToolChoice:
    return next(each for each in toolbox.search(text, 20) if each.tool.id == id)


def memory_of(home: Home) -> contextlib.closing[Memory]:
    return contextlib.closing(open_memory(home.settings().memory, home.path))


def called(
    home: Home, version: ToolVersion, *, times: int = 4, wall_ms: float = 10.0, failures: int = 0
) -> None:
    rows = [
        CallRow(version.tool_id, version.id, ok=number >= failures, wall_ms=wall_ms, at=number)
        for number in range(times)
    ]
    with home.ledger.write() as tx:
        record_calls(tx, rows)


@pytest.mark.parametrize(
    ("task", "tool"),
    [
        ("multiply two numbers", "basic_calculator"),
        ("translate this into German", "translator"),
        ("find bugs in my python program", "code_reviewer"),
        ("how many degrees fahrenheit are 20 celsius", "unit_converter"),
        ("extract all email addresses", "regex_extract"),
        ("write a blog post about cats", "content_generator"),
    ],
)
def test_the_tool_for_a_task_comes_first(toolbox: Toolbox, task: str, tool: str) -> None:
    assert ids(toolbox.search(task))[0] == tool


def test_the_choice_is_the_sum_of_its_parts_and_says_why(toolbox: Toolbox) -> None:
    choice = toolbox.search("multiply two numbers")[0]

    assert choice.fitness == pytest.approx(sum(part.points for part in choice.parts))
    assert points(choice) == {
        "similarity": pytest.approx(100 * choice.likeness),
        "speed": 20,
        "cost": 15,
        "quality": 15,
    }
    assert "its speed is said to be very-fast (+20)" in choice.why


def test_what_has_nothing_to_do_with_it_is_left_out(toolbox: Toolbox) -> None:
    assert toolbox.search("zzqx vbnm") == []
    assert toolbox.search("   ") == []
    assert "word_count" not in ids(toolbox.search("translate this into German", 20))


def test_a_search_can_be_narrowed(toolbox: Toolbox) -> None:
    assert {each.tool.type for each in toolbox.search("text", 20, type=ToolType.LLM)} == {ToolType.LLM}
    assert ids(toolbox.search("text", 20, tags=["frequency"])) == ["word_count"]
    assert toolbox.search("text", 20, tags=["frequency", "translation"]) == []


def test_a_tool_is_stored_once_and_found_as_it_is_now(home: Home) -> None:
    home.python("my_tool", more="description: peel ripe bananas\n")
    home.open().search("bananas")
    home.python("my_tool", more="description: tune old pianos\n")
    toolbox = home.open()

    assert ids(toolbox.search("tuning a piano"))[0] == "my_tool"
    assert "my_tool" not in ids(toolbox.search("peel bananas", 20))
    with memory_of(home) as memory:
        assert len(memory.words("pianos", kind="tool")) == 1


def test_a_removed_tool_is_never_found_again(home: Home) -> None:
    path = home.python("my_tool", more="description: peel ripe bananas\n")
    assert ids(home.open().search("peel bananas")) == ["my_tool"]
    path.unlink()

    toolbox = home.open()

    assert toolbox.search("peel bananas") == []
    with memory_of(home) as memory:
        assert memory.words("bananas") == []


@pytest.mark.soak
def test_a_new_memory_learns_all_tools_again(home: Home) -> None:
    toolbox = home.open()
    toolbox.search("anything")
    toolbox.close()
    for path in home.path.glob(f"{FILE_NAME}*"):
        path.unlink()

    assert ids(home.open().search("multiply two numbers"))[0] == "basic_calculator"


def test_a_tool_that_cannot_be_called_is_not_chosen(home: Home) -> None:
    home.write("my_label.yaml", "type: custom\ndescription: peel ripe bananas\n")

    assert home.open().search("peel bananas") == []


def test_what_was_measured_counts(home: Home) -> None:
    home.python("my_quick", more="description: peel ripe bananas\n")
    home.python("my_slow", more="description: peel ripe bananas\n")
    toolbox = home.open()
    called(home, toolbox.get("my_quick"), wall_ms=10, failures=1)
    called(home, toolbox.get("my_slow"), wall_ms=9000, failures=4)

    found = toolbox.search("peel bananas")

    assert ids(found) == ["my_quick", "my_slow"]
    best = found[0].likeness
    assert points(found[0])["latency"] == 15
    assert points(found[0])["success"] == 7.5
    assert points(found[1])["latency"] == pytest.approx(-10 * (found[1].likeness / best) ** 2)
    assert "success" not in points(found[1])


def test_feedback_counts_for_like_tasks_only(home: Home) -> None:
    home.python("my_good", more="description: peel ripe bananas\n")
    home.python("my_bad", more="description: peel ripe bananas\n")
    toolbox = home.open()

    toolbox.record_feedback("my_good", True, "peel ripe bananas for breakfast")
    toolbox.record_feedback("my_bad", False, "peel ripe bananas for breakfast")

    assert points(only(toolbox, "peel ripe bananas for breakfast", "my_good"))["feedback"] == 30
    assert points(only(toolbox, "peel ripe bananas for breakfast", "my_bad"))["feedback"] == -30
    assert "feedback" not in points(only(toolbox, "bananas in the fridge of a neighbour", "my_good"))


def test_feedback_has_bounds(home: Home) -> None:
    home.python("my_good", more="description: peel ripe bananas\n")
    toolbox = home.open()
    for _ in range(5):
        toolbox.record_feedback("my_good", True, "peel bananas")

    assert points(only(toolbox, "peel bananas", "my_good"))["feedback"] == 50


def test_a_server_that_must_be_started_and_a_wish_count(home: Home) -> None:
    home.write("my_server.yaml", "type: mcp\nmcp: {server: x, tool: y}\ndescription: peel ripe bananas\n")
    home.python("my_wish", more="description: peel ripe bananas\npriority: 80\n")
    home.python("my_weight", more="description: peel ripe bananas\nmanual_weight: -3\n")
    toolbox = home.open()

    assert points(only(toolbox, "peel ripe bananas", "my_server"))["mcp"] == -40
    assert points(only(toolbox, "my wish peel ripe bananas", "my_wish"))["weight"] == 8
    assert points(only(toolbox, "my weight peel ripe bananas", "my_weight"))["weight"] == -3
