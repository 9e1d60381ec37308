"""What changed for the callers of tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratchet.agents.contract import ToolShape
from ratchet.agents.versions import compare_tools, shapes_of, to_json
from ratchet.kernel.semver import Bump

TEXT = {"type": "string", "title": "Name"}
WHO = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
MOOD = {"type": "object", "properties": {"mood": {"enum": ["glad", "sad"]}}}


def tool(given: dict[str, Any] = WHO, answer: dict[str, Any] | None = None, name: str = "greet") -> ToolShape:
    return ToolShape(name, "Greets.", given, answer)


def properties(*required: str, **named: Any) -> dict[str, Any]:
    return {"type": "object", "properties": named, "required": list(required)}


def test_the_same_tools_are_a_patch() -> None:
    changes = compare_tools([tool()], [tool()])
    assert (changes.added, changes.removed, changes.changed, changes.widened) == ((), (), (), ())
    assert changes.least is Bump.PATCH


def test_tools_that_come_and_go_are_named() -> None:
    old, new = [tool(name="greet"), tool(name="shout")], [tool(name="greet"), tool(name="sing")]
    changes = compare_tools(old, new)
    assert (changes.added, changes.removed) == (("sing",), ("shout",))
    assert changes.least is Bump.MAJOR
    assert compare_tools(old[:1], new).least is Bump.MINOR


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (WHO, {**WHO, "title": "greetArguments", "description": "whom", "$comment": "!"}),
        (WHO, properties("name", name={"type": "string", "description": "whom", "default": "Ada"})),
        (MOOD, {"type": "object", "properties": {"mood": {"enum": ["sad", "glad"]}}}),
        (properties("a", "b", a=TEXT, b=TEXT), properties("b", "a", b=TEXT, a=TEXT)),
        (properties(a=TEXT), {"type": "object", "properties": {"a": TEXT}}),
        ({"type": ["string", "null"]}, {"type": ["null", "string"]}),
        ({"anyOf": [{"type": "null", "title": "A"}]}, {"anyOf": [{"type": "null", "title": "B"}]}),
        (WHO, {**WHO, "$defs": {"Unused": TEXT}}),
    ],
)
def test_words_for_people_and_order_are_a_patch(old: dict[str, Any], new: dict[str, Any]) -> None:
    changes = compare_tools([tool(old)], [tool(new)])
    assert (changes.changed, changes.widened) == ((), ())
    assert changes.least is Bump.PATCH


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (WHO, properties("name", name=TEXT, loud={"type": "boolean"})),
        (properties(who=WHO), properties(who=properties("name", name=TEXT, title=TEXT))),
        ({"items": WHO}, {"items": properties("name", name=TEXT, loud=TEXT)}),
        ({"$defs": {"Who": WHO}}, {"$defs": {"Who": properties("name", name=TEXT, loud=TEXT)}}),
    ],
)
def test_an_optional_parameter_is_a_minor_change(old: dict[str, Any], new: dict[str, Any]) -> None:
    changes = compare_tools([tool(old)], [tool(new)])
    assert (changes.changed, changes.widened) == ((), ("greet",))
    assert changes.least is Bump.MINOR


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (WHO, properties()),
        (WHO, properties("name", "loud", name=TEXT, loud=TEXT)),
        (WHO, properties(name=TEXT)),
        (properties(name=TEXT), WHO),
        (WHO, properties("name", name={"type": "integer"})),
        (WHO, properties("name", name={"type": "string", "maxLength": 5})),
        (MOOD, {"type": "object", "properties": {"mood": {"enum": ["glad"]}}}),
        ({"enum": [1, 2]}, {"enum": [True, 2]}),
        ({"enum": [{"title": "a"}]}, {"enum": [{"title": "b"}]}),
        ({"const": {"title": "a"}}, {"const": {"title": "b"}}),
        ({"const": [1, 2]}, {"const": [2, 1]}),
        (properties(title=TEXT), properties()),
        (properties(title=TEXT), properties(title={"type": "integer"})),
        (WHO, {**WHO, "additionalProperties": False}),
        (properties(who=WHO), properties(who=properties(name=TEXT))),
        ({"anyOf": [WHO]}, {"anyOf": [properties("name", name={"type": "integer"})]}),
        ({"anyOf": [properties(title=TEXT)]}, {"anyOf": [properties()]}),
        ({"items": TEXT}, {}),
        ({"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}),
        ({"$defs": {"A": TEXT}}, {"$defs": {"A": {"type": "integer"}}}),
    ],
)
def test_any_other_change_of_what_a_tool_takes_is_major(old: dict[str, Any], new: dict[str, Any]) -> None:
    changes = compare_tools([tool(old)], [tool(new)])
    assert (changes.changed, changes.widened) == (("greet",), ())
    assert changes.least is Bump.MAJOR


@pytest.mark.parametrize(
    ("old", "new", "least"),
    [
        (None, WHO, Bump.MINOR),
        (WHO, None, Bump.MAJOR),
        (WHO, properties("name", "loud", name=TEXT, loud=TEXT), Bump.MINOR),
        (properties(name=TEXT), WHO, Bump.PATCH),
        (WHO, properties(name=TEXT), Bump.MAJOR),
        (WHO, properties(), Bump.MAJOR),
        (WHO, properties("name", name={"type": "integer"}), Bump.MAJOR),
        (MOOD, {"type": "object", "properties": {"mood": {"enum": ["glad", "sad", "calm"]}}}, Bump.MAJOR),
    ],
)
def test_what_callers_rely_on_in_an_answer_must_stay(
    old: dict[str, Any] | None, new: dict[str, Any] | None, least: Bump
) -> None:
    assert compare_tools([tool(answer=old)], [tool(answer=new)]).least is least


@pytest.mark.parametrize(
    "garbage",
    [
        {"properties": 5},
        {"properties": ["name"]},
        {"properties": {"name": 5}},
        {"required": "name"},
        {"required": [["name"]]},
        {"type": {"a": 1}},
        {"$defs": None},
    ],
)
def test_a_schema_that_makes_no_sense_is_a_change_and_no_crash(garbage: dict[str, Any]) -> None:
    assert compare_tools([tool(WHO)], [tool(garbage)]).least is Bump.MAJOR
    assert compare_tools([tool(garbage)], [tool(garbage)]).least is Bump.PATCH


def test_a_schema_too_deep_to_compare_is_a_change() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"items": deep}
    assert compare_tools([tool(deep)], [tool(deep)]).changed == ("greet",)


def test_tools_survive_being_recorded() -> None:
    tools = (tool(), tool(answer=MOOD, name="ask"))
    assert shapes_of(json.loads(json.dumps(to_json(tools)))) == tools
    assert shapes_of([]) == ()
