"""References: what is one, what is a literal, and what comes of it."""

from typing import Any

import pytest
from hypothesis import given

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.references import (
    OF_ITEMS,
    Reference,
    find_inside,
    find_references,
    read_reference,
    resolve,
    resolve_inside,
    take,
)

from .strategies import values

VALUES: dict[str, Any] = {
    "inputs.topic": "tea",
    "inputs.count": 3,
    "inputs.none": None,
    "steps.a.output": {"rows": [10, 20], "first name": "Ada"},
}


def lookup(reference: Reference) -> Any:
    base = {"inputs": 1, "steps": 2}[reference.kind]
    key = ".".join([reference.kind, *map(str, reference.path[:base])])
    return take(reference, VALUES[key])


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ("inputs.topic", "inputs", ("topic",)),
        ("${inputs.topic}", "inputs", ("topic",)),
        ("${ inputs.topic }", "inputs", ("topic",)),
        ("inputs.a-b_c", "inputs", ("a-b_c",)),
        ("steps.a.output", "steps", ("a", "output")),
        ("steps.a.output.rows[0]", "steps", ("a", "output", "rows", 0)),
        ("steps.a.output.rows.0", "steps", ("a", "output", "rows", "0")),
        ("${steps.a.output['first name']}", "steps", ("a", "output", "first name")),
        ('steps.a.output["x.y"]', "steps", ("a", "output", "x.y")),
    ],
)
def test_a_text_that_is_a_reference_is_read_as_one(text: str, kind: str, path: tuple[str | int, ...]) -> None:
    reference = read_reference(text)

    assert reference is not None
    assert (reference.kind, reference.path) == (kind, path)
    assert read_reference(str(reference)) == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tea",
        "inputs",
        "inputs.",
        "inputs..x",
        "inputs.x\n",
        "see inputs.x",
        "$${inputs.x}",
        "${HOME}",
        "{inputs.x}",
        "item",
        "${index}",
        "steps.a.b[",
    ],
)
def test_everything_else_is_a_literal(text: str) -> None:
    assert read_reference(text) is None
    assert find_references(text) == ()
    assert resolve(text, lookup) == text.replace("$${", "${")


def test_items_are_references_only_where_there_are_items() -> None:
    assert read_reference("item.name", own=OF_ITEMS) == Reference("item", ("name",))
    assert read_reference("index", own=OF_ITEMS) == Reference("index")
    assert resolve({"kind": "item", "file": "index"}, lookup) == {"kind": "item", "file": "index"}


def test_references_are_found_anywhere_in_a_value_each_once_and_in_order() -> None:
    value = {
        "a": ["steps.a.output", {"b": "x ${inputs.topic} y ${inputs.count}"}],
        "c": "inputs.topic",
        "d": 7,
    }

    assert [str(one) for one in find_references(value)] == ["steps.a.output", "inputs.topic", "inputs.count"]


def test_a_reference_alone_keeps_the_type_of_its_value() -> None:
    assert resolve({"n": "inputs.count", "m": "${inputs.count}", "k": [None, "inputs.none"]}, lookup) == {
        "n": 3,
        "m": 3,
        "k": [None, None],
    }


def test_a_reference_inside_a_text_becomes_text() -> None:
    text = "${inputs.topic}: ${inputs.count}, ${steps.a.output.rows}, ${inputs.none}; $${inputs.topic}"

    assert resolve(text, lookup) == "tea: 3, [10, 20], null; ${inputs.topic}"
    assert resolve_inside("inputs.topic", lookup) == "inputs.topic"
    assert find_inside("inputs.topic and ${inputs.count} and $${inputs.x}") == (
        Reference("inputs", ("count",)),
    )


def test_what_is_looked_up_is_not_read_again() -> None:
    def tricky(reference: Reference) -> str:
        return "${inputs.secret}"

    assert resolve("inputs.x", tricky) == "${inputs.secret}"
    assert resolve("a ${inputs.x}", tricky) == "a ${inputs.secret}"


@pytest.mark.parametrize(
    ("path", "said"),
    [("rows[2]", "a list of 2 has no 2"), ("nothing", "rows, first name"), ("rows.first", "has no 'first'")],
)
def test_a_path_that_leads_nowhere_says_what_is_there(path: str, said: str) -> None:
    reference = read_reference(f"steps.a.output.{path}")
    assert reference is not None

    with pytest.raises(StepFailed) as caught:
        lookup(reference)

    assert said in str(caught.value)
    assert caught.value.final


@given(values)
def test_resolving_a_value_only_touches_what_is_found_in_it(value: Any) -> None:
    found = find_references(value)

    resolved = resolve(value, lambda reference: str(reference))

    if not found and "$${" not in str(value):
        assert resolved == value
