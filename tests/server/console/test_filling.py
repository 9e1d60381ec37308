"""Forms from schemas that anybody may have written, and the values that come back."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.kernel import Misuse
from ratchet.server.console.forms import fields_of_schema, read_values, takes_more

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "n": {"type": "integer"},
        "maybe": {"type": ["number", "null"]},
        "sure": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "one": {"enum": ["a", 1, {"b": None}]},
        "many": {"type": "array", "items": {"type": "string"}},
        "csrf": {"type": "string"},
        "odd": "no schema at all",
    },
    "required": ["text", "n"],
}


def test_values_come_back_as_the_types_that_the_schema_names() -> None:
    fields = fields_of_schema(SCHEMA)
    assert {each.name: each.control for each in fields} == {
        "text": "text",
        "n": "number",
        "maybe": "number",
        "sure": "choice",
        "one": "choice",
        "many": "json",
        "csrf": "text",
        "odd": "json",
    }
    filled = {
        "csrf": "the secret of the form",
        "input.text": "a\r\nb",
        "input.n": "3",
        "input.maybe": "",
        "input.sure": "false",
        "input.one": '{"b": null}',
        "input.many": '["x"]',
        "input.csrf": "mine",
    }
    assert read_values(fields, filled) == {
        "text": "a\nb",
        "n": 3,
        "sure": False,
        "one": {"b": None},
        "many": ["x"],
        "csrf": "mine",
    }


def test_choices_that_are_all_texts_are_shown_without_quotation_marks() -> None:
    [field] = fields_of_schema({"properties": {"how": {"enum": ["add", "divide"]}}})
    assert (field.type, field.choices) == ("string", ("add", "divide"))
    assert read_values([field], {"input.how": "add"}) == {"how": "add"}


def test_everything_that_does_not_fit_is_told_at_once() -> None:
    filled = {"input.n": "3.5", "input.many": "{}", "input.unknown": "1", "input.one": "["}
    with pytest.raises(Misuse) as told:
        read_values(fields_of_schema(SCHEMA), filled)
    for name in ("n must be an integer", "many must be an array", "no input 'unknown'", "one must be JSON"):
        assert name in str(told.value)


@pytest.mark.parametrize("schema", [None, {}, {"properties": [], "required": "n"}, {"type": "object"}])
def test_a_schema_that_names_nothing_is_asked_for_as_a_whole(schema: dict[str, Any] | None) -> None:
    assert fields_of_schema(schema) == []
    assert takes_more(schema)
    assert read_values([], {"more": '{"n": 3}'}) == {"n": 3}
    for wrong in ("[1]", "{", "NaN"):
        with pytest.raises(Misuse):
            read_values([], {"more": wrong})
