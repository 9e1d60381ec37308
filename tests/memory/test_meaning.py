"""The default embedder finds the right tool where words alone do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ratchet.memory import FoundEntry, Memory
from tests.memory.tasks import TASKS, TOOLS


def right(search: Callable[..., list[FoundEntry]], *, within: int) -> int:
    """For how many tasks the right tool is among the first."""
    return sum(
        tool in [each.entry.data["tool"] for each in search(task, limit=within)]
        for task, tool in TASKS.items()
    )


@pytest.mark.soak
def test_meaning_finds_the_tool_that_words_miss(memory: Memory) -> None:
    for tool, text in TOOLS.items():
        memory.store(text, kind="tool", data={"tool": tool})
    assert right(memory.find, within=1) >= 12
    assert right(memory.find, within=3) >= 14
    assert right(memory.words, within=1) <= 6


def test_a_task_in_the_words_of_the_tool_finds_it(memory: Memory) -> None:
    for tool, text in TOOLS.items():
        memory.store(text, kind="tool", data={"tool": tool})
    for tool, text in TOOLS.items():
        assert memory.find(f"please {text} for me")[0].entry.data["tool"] == tool
        assert memory.words(text)[0].entry.data["tool"] == tool
