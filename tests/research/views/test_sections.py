"""Sections within a budget of characters."""

from __future__ import annotations

import re

import pytest

from ratchet.research.views.text import PromptEntry, PromptSection, fit

FIRST = PromptSection("First", 0.0, [PromptEntry("- what comes before all", number=1)])


def test_everything_is_shown_where_there_is_room() -> None:
    second = PromptSection(
        "Second", 1.0, [PromptEntry("- one in full", "- one", 1), PromptEntry("- two in full", "- two", 2)]
    )
    third = PromptSection("Third", 1.0, [PromptEntry("- two again in full", "- two again", 2)], ["head"])
    assert fit([FIRST, second, third], 500) == (
        "## First\n\n- what comes before all\n\n## Second\n\n- one\n- two in full\n\n## Third\n\nhead\n- two again"
    )


def test_what_was_cut_off_is_given_in_full_where_it_comes_up_again() -> None:
    second = PromptSection(
        "Second", 0.5, [PromptEntry("- " + "x" * 50, "- x", 2), PromptEntry("- " + "y" * 50, "- y", 3)]
    )
    third = PromptSection("Third", 0.5, [PromptEntry("- y told", "- y above", 3)])
    page = fit([FIRST, second, third], 150)
    assert f"- {'x' * 50}\n… 1 more\n\n## Third\n\n- y told" in page


def test_a_section_without_entries_or_room_is_left_out() -> None:
    page = fit(
        [FIRST, PromptSection("Empty", 0.5, []), PromptSection("Long", 0.5, [PromptEntry("z" * 200)])], 100
    )
    assert page == "## First\n\n- what comes before all"


@pytest.mark.parametrize("length", [1, 6, 7, 8, 9, 20])
def test_no_budget_is_exceeded_and_no_entry_is_left_out_without_a_note(length: int) -> None:
    long = PromptSection("Second", 0.3, [PromptEntry("y" * length)] * 12)
    short = PromptSection("Third", 0.7, [PromptEntry("z" * length)] * 3)
    for budget in range(40, 400):
        page = fit([FIRST, long, short], budget)
        assert len(page) <= budget
        for section in page.split("\n\n## ")[1:]:
            shown = section.splitlines()[2:]
            note = re.fullmatch(r"… (\d+) more", shown[-1])
            told = len(shown) - 1 + int(note[1]) if note else len(shown)
            assert told == (12 if section.startswith("Second") else 3)
