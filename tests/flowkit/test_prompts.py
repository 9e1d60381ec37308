"""Prompts are filled in one go."""

from ratchet.flowkit.references import OF_ITEMS
from ratchet.flowkit.templates import fill_prompt, names_in


def test_names_and_references_are_replaced_by_their_values() -> None:
    filled = fill_prompt(
        '{topic} in ${inputs.n} words of {options}; {unknown} {"a": {}} $${inputs.n} {{topic}}',
        {"topic": "tea", "options": {"x": [1]}},
        lambda reference: {"inputs.n": 7}[str(reference)],
    )

    assert filled == 'tea in 7 words of {"x": [1]}; {unknown} {"a": {}} ${inputs.n} {topic}'


def test_braces_inside_a_value_stay_what_they_are() -> None:
    values = {"a": "{b} ${inputs.secret}", "b": "{a}"}

    assert fill_prompt("{a} {b}", values, lambda _: "leaked") == "{b} ${inputs.secret} {a}"


def test_the_places_of_a_prompt_are_listed_once() -> None:
    assert names_in('{a} {b} {a} {{c}} ${inputs.d} {"e": 1} {not a name}') == ("a", "b")


def test_items_have_a_place_only_in_a_list() -> None:
    assert fill_prompt("${item}", {}, lambda _: "x") == "${item}"
    assert fill_prompt("${item}", {}, lambda _: "x", own=OF_ITEMS) == "x"
