"""Failures, fixes and lessons are stored once, found by meaning, words and tags, and gone when they are deleted."""

from __future__ import annotations

from ratchet.memory import Memory
from ratchet.workflows.memory import (
    forget_workflow,
    lessons_for,
    remember_failure,
    remember_fix,
    remember_lesson,
)
from tests.memory.conftest import OpenMemory

FRUIT = {"m1": "mango", "z1": "zebra", "a1": "apple"}


def store_all(memory: Memory) -> dict[str, str]:
    """The id of each entry."""
    return {name: remember_lesson(memory, name, text, tags=[text]) for name, text in FRUIT.items()}


def test_what_was_stored_is_found_by_its_meaning_in_whatever_order_it_came(memory: Memory) -> None:
    ids = store_all(memory)
    for name, text in FRUIT.items():
        assert memory.find(text)[0].entry.id == ids[name]
        assert lessons_for(memory, text)[0].id == ids[name]


def test_storing_again_under_the_same_name_keeps_three(memory: Memory) -> None:
    ids = store_all(memory)
    assert remember_lesson(memory, "z1", "zebra", tags=["zebra"]) == ids["z1"]
    assert len(memory.find("zebra")) == len(memory.entries()) == 3


def test_entries_have_all_of_the_tags_that_are_asked_for(memory: Memory) -> None:
    ids = store_all(memory)
    assert [entry.id for entry in memory.entries(tags=["apple"])] == [ids["a1"]]
    assert memory.entries(tags=["missing", "apple"]) == []


def test_a_restart_finds_the_same_and_never_what_was_deleted(open_again: OpenMemory) -> None:
    before = open_again()
    ids = store_all(before)
    found = [each.entry.id for each in before.find("zebra")]
    before.close()
    after = open_again()
    assert [each.entry.id for each in after.find("zebra")] == found
    after.delete(id=ids["z1"])
    for memory in (after, open_again()):
        assert ids["z1"] not in [each.entry.id for each in memory.find("zebra")]
        assert memory.words("zebra") == []
        assert lessons_for(memory, "zebra") == []


def test_a_failure_is_remembered_once_and_told_to_who_asks_for_something_similar(memory: Memory) -> None:
    for reason in ("the translator answered nothing", "the translator answered nothing in time"):
        remember_failure(
            memory, run_id=7, sentence="Translate a poem into French", step="translate", reason=reason
        )
    [lesson] = lessons_for(memory, "Translate a letter into French")
    assert (lesson.kind, lesson.step, lesson.problem) == (
        "failure",
        "translate",
        "the translator answered nothing in time",
    )
    assert lesson.text == (
        "“Translate a poem into French” failed at translate: the translator answered nothing in time"
    )
    assert lessons_for(memory, "Plot the sales of a year") == []


def test_a_fix_says_what_was_wrong_and_what_mended_it(memory: Memory) -> None:
    remember_fix(
        memory,
        run_id=7,
        sentence="Translate a poem",
        step="plan",
        problem="the steps a and b wait for each other.",
        fix="b reads the input itself",
        workflow="poem",
    )
    [lesson] = lessons_for(memory, "Translate a poem")
    assert "wait for each other. What fixed it: b reads the input itself" in lesson.text
    assert forget_workflow(memory, "poem") == 1
    assert lessons_for(memory, "Translate a poem") == []


def test_words_find_a_sentence_whose_meaning_is_lost_in_what_is_said_about_it(memory: Memory) -> None:
    reason = "the harvest of apples, pears and plums was sold at the market by farmers in spring " * 10
    remember_failure(memory, run_id=1, sentence="Zip the logs", step="zip", reason=reason)
    assert memory.find("zip all logs")[0].likeness < 0.4
    assert [each.sentence for each in lessons_for(memory, "zip all logs")] == ["Zip the logs"]
    assert lessons_for(memory, "apples") == []


def test_a_text_of_any_length_is_cut_to_what_matters(memory: Memory) -> None:
    remember_failure(memory, run_id=1, sentence="sort " * 100_000, step="plan", reason="x" * 1_000_000)
    [lesson] = lessons_for(memory, "sort sort")
    assert len(lesson.problem) < 2100
    assert len(lesson.sentence) < 2100
