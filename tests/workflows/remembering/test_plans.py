"""Plans are remembered once for each sentence, and found by the same or a similar one."""

from __future__ import annotations

import pytest

from ratchet.memory import Memory
from ratchet.workflows.memory import (
    differ_in,
    find_plans,
    forget_workflow,
    particulars,
    remember_failure,
    remember_plan,
    shared_words,
)
from tests.memory.conftest import OpenMemory

COUNT = "Count the words of a text"
HASH = "a" * 64


def test_the_plan_of_the_very_sentence_comes_first_however_it_is_spaced(memory: Memory) -> None:
    remember_plan(memory, "Count how many words a text has", "other", HASH)
    remember_plan(memory, COUNT, "count", HASH)
    exact, similar = find_plans(memory, "  Count the\nwords of a text ")
    assert (exact.workflow, exact.exact, exact.likeness) == ("count", True, 1.0)
    assert (similar.workflow, similar.exact) == ("other", False)
    assert 0.9 < similar.likeness < 1


def test_a_sentence_has_one_plan_and_that_is_the_last(memory: Memory) -> None:
    first = remember_plan(memory, COUNT, "one", HASH)
    assert remember_plan(memory, f" {COUNT}", "two", HASH) == first
    [only] = find_plans(memory, COUNT)
    assert only.workflow == "two"


def test_plans_are_there_after_a_restart_and_gone_with_their_workflow(open_again: OpenMemory) -> None:
    before = open_again()
    remember_plan(before, COUNT, "count", HASH)
    remember_plan(before, "Translate a letter", "translate", HASH)
    remember_failure(before, run_id=3, sentence=COUNT, step="split", reason="no text", workflow="count")
    before.close()
    after = open_again()
    assert [each.workflow for each in find_plans(after, COUNT)] == ["count", "translate"]
    assert forget_workflow(after, "count") == 2
    assert [each.workflow for each in find_plans(after, COUNT)] == ["translate"]
    assert [each.workflow for each in find_plans(open_again(), COUNT)] == ["translate"]


def test_an_entry_that_a_person_stored_under_the_kind_leads_to_no_plan(memory: Memory) -> None:
    memory.store(COUNT, kind="plan")
    assert find_plans(memory, COUNT) == []


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ("Summarise the 5 newest articles", "Summarise the 10 newest articles", "5"),
        ("translate it to French", "translate it to German", "french"),
        ("Mail the list to 'a@b.org'", "Mail the list to 'c@d.org'", "a@b.org"),
        ("Translate it to French.", "please translate it to french", None),
        ("Count words. Then sort them", "count words, and sort them", None),
        ("take version 1.5", "take version 1", "1.5"),
        ("Remove duplicate names from a list", "Do NOT remove duplicate names from a list", "not"),
        ("Keep the lines with an error", "Keep the lines without an error", "without"),
        ("Don't sort the names", "Sort the names", "not"),
        ("Give three ideas", "Give five ideas", "five"),
    ],
)
def test_sentences_that_name_other_things_are_not_the_same(
    one: str, other: str, difference: str | None
) -> None:
    assert differ_in(one, other) == difference
    assert (differ_in(other, one) is None) == (difference is None)


def test_a_capital_letter_at_the_beginning_makes_no_name() -> None:
    assert particulars('Count words. Send "two lines" to Anna at 9:30') == {"two lines", "anna", "9:30"}


def test_the_share_of_common_words_is_a_number_from_nothing_to_one() -> None:
    assert shared_words("count the words", "Count THE words") == 1
    assert shared_words("count the words", "count the letters") == pytest.approx(0.5)
    assert shared_words("", "") == 0
