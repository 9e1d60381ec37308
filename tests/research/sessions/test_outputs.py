"""Answers that are too long to be read at once."""

from __future__ import annotations

import re

import pytest

from ratchet.research.sessions.context import MOST, ToolOutputs


def read_all(outputs: ToolOutputs, shown: str) -> str:
    """The whole of an answer, read on as it says."""
    whole = ""
    while found := re.search(r"\n\[cut: .* output=(\d+) and offset=(\d+) reads on\]$", shown):
        whole += shown[: found.start()]
        shown = outputs.read(int(found[1]), int(found[2])) or ""
    return whole + shown


def test_a_short_answer_stays_as_it_is() -> None:
    assert ToolOutputs().capped("x" * MOST) == "x" * MOST


@pytest.mark.parametrize("text", ["abc" * 20_000, "äöü✓𝄞" * 20_000, "x" * (MOST + 1)])
def test_a_long_one_is_cut_and_can_be_read_to_its_end(text: str) -> None:
    outputs = ToolOutputs()
    shown = outputs.capped(text)
    assert len(shown.encode()) <= MOST
    assert read_all(outputs, shown) == text


def test_several_are_told_apart() -> None:
    outputs = ToolOutputs()
    first, second = outputs.capped("1" * 40_000), outputs.capped("2" * 40_000)
    assert read_all(outputs, first) == "1" * 40_000
    assert read_all(outputs, second) == "2" * 40_000


def test_what_is_no_text_can_be_sent_all_the_same() -> None:
    ToolOutputs().capped("a\udc80b").encode()


def test_old_ones_are_forgotten_before_they_fill_the_memory() -> None:
    outputs = ToolOutputs()
    for _ in range(10):
        outputs.capped("x" * 1024 * 1024)
    assert outputs.read(1, 0) is None
    assert outputs.read(10, 0) is not None


@pytest.mark.parametrize(("number", "offset", "found"), [(1, 10**9, ""), (7, 0, None)])
def test_reading_what_is_not_there(number: int, offset: int, found: str | None) -> None:
    outputs = ToolOutputs()
    outputs.capped("x" * 20_000)
    assert outputs.read(number, offset) == found
