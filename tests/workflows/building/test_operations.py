"""The kind of an operation, from words."""

import pytest

from ratchet.workflows.builder import infer_operation_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write a haiku", "generator"),
        ("Translate it to French", "transformer"),
        ("Check that the sum is right", "validator"),
        ("Merge both lists", "combiner"),
        ("Split the text into sentences", "splitter"),
        ("Remove the empty rows", "filter"),
        ("Create and then validate a list", "generator"),
        ("Convert, then check", "transformer"),
        ("Ponder", "generator"),
        ("", "generator"),
        ("Filter what was recreated by the makers", "filter"),
        ("SPLIT!", "splitter"),
    ],
)
def test_the_first_kind_that_a_whole_word_names_is_taken(text: str, expected: str) -> None:
    assert infer_operation_type(text) == expected
