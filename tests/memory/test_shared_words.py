"""Without word vectors: found by shared words, and nothing breaks when the vectors come later."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ratchet.config.workflow_settings import MemorySettings as Settings
from ratchet.memory import SharedWords, WordLlama, open_memory, reembed
from tests.memory.tasks import TOOLS


def test_a_task_in_the_words_of_the_tool_finds_it(tmp_path: Path) -> None:
    with contextlib.closing(open_memory(Settings(), tmp_path, SharedWords())) as memory:
        for tool, text in TOOLS.items():
            memory.store(text, kind="tool", data={"tool": tool})
        for tool, text in TOOLS.items():
            assert memory.find(f"please {text} for me")[0].entry.data["tool"] == tool


def test_a_memory_keeps_its_way_until_it_is_embedded_again(tmp_path: Path) -> None:
    assert WordLlama.is_installed()
    task, tool = "make a smaller version of this photo", "thumbnail"
    with contextlib.closing(open_memory(Settings(), tmp_path, SharedWords())) as memory:
        for name, text in TOOLS.items():
            memory.store(text, kind="tool", data={"tool": name})
    with contextlib.closing(open_memory(Settings(), tmp_path)) as memory:
        assert memory.find(TOOLS[tool])[0].entry.data["tool"] == tool
        assert memory.find(task)[0].entry.data["tool"] != tool
    assert reembed(Settings(), tmp_path) == len(TOOLS)
    with contextlib.closing(open_memory(Settings(), tmp_path)) as memory:
        assert memory.find(task)[0].entry.data["tool"] == tool
