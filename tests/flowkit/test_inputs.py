"""The values that a workflow is started with."""

from pathlib import Path
from typing import Any

import pytest

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.inputs import given_text
from ratchet.flowkit.jsontext import LARGEST
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.validation import check_inputs, parse_input_texts

from . import fixtures

SPEC = read_spec(
    fixtures.small(
        {"step_id": "a"},
        inputs={
            "topic": {"type": "string"},
            "count": {"type": "integer", "required": False, "default": 3},
            "ratio": {"type": "number", "required": False},
            "deep": {"type": "boolean", "default": False},
            "rows": {"type": "array", "required": False},
            "options": {"type": "object", "required": False},
            "mode": {"type": "string", "required": False, "enum": ["fast", "slow"]},
            "url": {"type": "string", "required": False, "pattern": "^https?://.*"},
        },
    )
)


def test_what_is_not_given_has_its_default() -> None:
    assert check_inputs(SPEC, {"topic": "tea"}) == {
        "topic": "tea",
        "count": 3,
        "ratio": None,
        "deep": False,
        "rows": None,
        "options": None,
        "mode": None,
        "url": None,
    }


@pytest.mark.parametrize("given", [{}, {"topic": None}])
def test_a_missing_input_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        check_inputs(SPEC, given)

    assert caught.value.problems == ["Missing required input: topic"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("topic", 1, "Input topic must be a string, not 1"),
        ("count", 1.5, "Input count must be an integer, not 1.5"),
        ("count", True, "Input count must be an integer, not true"),
        ("ratio", "1", 'Input ratio must be a number, not "1"'),
        ("ratio", False, "Input ratio must be a number, not false"),
        ("deep", 1, "Input deep must be a boolean, not 1"),
        ("rows", {}, "Input rows must be an array, not {}"),
        ("options", [], "Input options must be an object, not []"),
        ("mode", "other", 'Input mode must be one of ["fast", "slow"], not "other"'),
        ("url", "ftp://x", "Input url must fit the pattern ^https?://.*"),
        ("ratio", float("nan"), "Input ratio has the number nan"),
        ("topic", "\ud800", "Input topic has half of a surrogate pair"),
        ("rows", [b""], "Input rows has a bytes"),
        ("other", 1, "Unknown input: other (the workflow has topic, count"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_inputs(SPEC, {"topic": "tea", name: value})

    assert len(caught.value.problems) == 1
    assert said in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        check_inputs(SPEC, {"count": "x", "other": 1})

    assert len(caught.value.problems) == 3


def test_texts_of_a_command_line_become_values_of_their_types() -> None:
    given = {
        "topic": "17",
        "count": "4",
        "ratio": "1e-2",
        "deep": "Yes",
        "rows": "[1, null]",
        "options": '{"a": {}}',
        "url": "https://example.org",
    }

    values = parse_input_texts(SPEC, given)

    assert values == {
        "topic": "17",
        "count": 4,
        "ratio": 0.01,
        "deep": True,
        "rows": [1, None],
        "options": {"a": {}},
        "url": "https://example.org",
    }
    assert check_inputs(SPEC, values)["mode"] is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("count", "4.5"),
        ("count", ""),
        ("ratio", "NaN"),
        ("deep", "perhaps"),
        ("rows", "a,b"),
        ("options", "[]"),
    ],
)
def test_a_text_that_is_no_such_value_is_named(name: str, text: str) -> None:
    with pytest.raises(SpecError, match=f"Input {name} must be"):
        parse_input_texts(SPEC, {name: text})


def test_a_name_that_does_not_exist_is_an_error_on_the_command_line_too() -> None:
    with pytest.raises(SpecError, match="Unknown input: topik"):
        parse_input_texts(SPEC, {"topik": "tea"})


def test_a_value_that_would_take_too_long_to_match_is_refused() -> None:
    spec = read_spec(fixtures.small({"step_id": "a"}, inputs={"x": {"pattern": "a*b*c*d"}}))

    with pytest.raises(
        SpecError, match=r"Input x: the pattern .* is too costly for a text of 1000 characters"
    ):
        check_inputs(spec, {"x": "a" * 1000})


def test_an_object_has_the_defaults_of_its_own_properties() -> None:
    options = {"type": "object", "default": {}, "properties": {"deep": {"type": "integer", "default": 2}}}
    spec = read_spec(fixtures.small({"step_id": "a"}, inputs={"options": options}))
    assert check_inputs(spec, {}) == {"options": {"deep": 2}}
    assert check_inputs(spec, {"options": {"deep": 5}}) == {"options": {"deep": 5}}


@pytest.mark.parametrize("text", ["plain", "", "a@b", "x=@y"])
def test_a_text_without_an_at_in_front_is_itself(text: str) -> None:
    assert given_text(text) == text


def test_an_at_names_a_file_and_two_are_the_sign_itself(tmp_path: Path) -> None:
    file = tmp_path / "article.txt"
    file.write_bytes(b"\xef\xbb\xbfDie Flut k\xc3\xb6mmt.\n")
    assert given_text(f"@{file}") == "Die Flut kömmt.\n"
    assert given_text("@@ada") == "@ada"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\xff\xfe")
    with large.open("wb") as opened:
        opened.truncate(LARGEST + 1)
    for file, why in ((tmp_path / "absent", "No such file"), (tmp_path, "directory"), (binary, "UTF-8")):
        with pytest.raises(SpecError, match=f"{file} .*{why}"):
            given_text(f"@{file}")
    with pytest.raises(SpecError, match=f"{large} is too large"):
        given_text(f"@{large}")
