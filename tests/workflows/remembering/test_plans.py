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


OPPOSITES = [
    ("Take the top ½", "Take the top ¼"),
    ("Keep non-empty lines", "Keep empty lines"),
    ("Keep nonempty lines", "Keep empty lines"),
    ("Remove lines that are unsorted", "Remove lines that are sorted"),
    ("Translate the letter to german", "Translate the letter to french"),
    ("Sort ascending", "Sort descending"),
    ("Convert 5 km to miles", "Convert 5 m to miles"),
    ("Send it everywhere but Berlin", "Send it to Berlin"),
    ("Convert -5 to F", "Convert 5 to F"),
    ("List files lacking a header", "List files with a header"),
    ("Dont remove duplicates", "Remove duplicates"),
    ("Delete the fifteenth row", "Delete the fourteenth row"),
    ("Summarise in thirteen words", "Summarise in fourteen words"),
    ("Summarise in 3 sentences", "Summarise in 3 words"),
    ("Keep rows of at least 3", "Keep rows of at most 3"),
    ("Stop removing duplicates", "Start removing duplicates"),
    ("Encrypt the file", "Decrypt the file"),
    ("Keep the newest file", "Keep the oldest file"),
    ("Не удаляй дубликаты", "Удаляй дубликаты"),  # noqa: RUF001
    ("Non rimuovere i duplicati", "Rimuovere i duplicati"),
    ("Não remova duplicados", "Remova duplicados"),
    ("Verwijder geen dubbele namen", "Verwijder dubbele namen"),
    ("Ta inte bort dubbletter", "Ta bort dubbletter"),
    ("不要删除重复", "删除重复"),
    ("重複を削除しない", "重複を削除する"),
]


@pytest.mark.parametrize(("one", "other"), OPPOSITES)
def test_opposites_other_units_and_other_languages_are_not_even_asked_about(one: str, other: str) -> None:
    assert differ_in(one, other) is not None
    assert differ_in(other, one) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Remove duplicate names", "Delete names that are duplicates"),
        ("Sort the names and remove the last line", "Sort the names and drop the last line"),
        ("Summarise the text", "Give a summary of the text"),
        ("Put the inputs in order", "Put inputs in order"),
    ],
)
def test_the_same_in_other_words_may_be_asked_about(one: str, other: str) -> None:
    assert differ_in(one, other) is None


def test_a_sentence_is_another_with_a_factorial_or_other_blanks_in_quotes(memory: Memory) -> None:
    for sentence in ("Compute 5!", 'Split by " "', "Say hello!"):
        remember_plan(memory, sentence, "first", HASH)
    for sentence in ("Compute 5", 'Split by "  "'):
        assert not find_plans(memory, sentence)[0].exact
    for sentence in ("Compute 5! ", ' Split by " ".', "Say  hello"):
        assert find_plans(memory, sentence)[0].exact


def test_a_capital_letter_at_the_beginning_makes_no_name() -> None:
    assert particulars('Count words. Send "two lines" to Anna at 9:30') == {"two lines", "anna", "9:30"}


def test_the_share_of_common_words_is_a_number_from_nothing_to_one() -> None:
    assert shared_words("count the words", "Count THE words") == 1
    assert shared_words("count the words", "count the letters") == pytest.approx(0.5)
    assert shared_words("", "") == 0
