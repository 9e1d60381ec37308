"""The language of `when`."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.flowkit.conditions import LONGEST, read_condition
from ratchet.flowkit.errors import SpecError, StepFailed
from ratchet.flowkit.references import Reference, take

VALUES: dict[str, Any] = {
    "score": 0.7,
    "mode": "fast",
    "tags": ["a", "b"],
    "flag": False,
    "none": None,
    "one": 1,
    "deep": {"x-y": [1, 2]},
}


def lookup(reference: Reference) -> Any:
    return take(reference, VALUES[reference.name])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inputs.score >= 0.5", True),
        ("0 < inputs.score < 0.5", False),
        ("inputs.score > 0.5 and inputs.mode != 'fast'", False),
        ("inputs.score > 0.5 or inputs.mode != 'fast'", True),
        ("not inputs.flag", True),
        ("inputs.flag == false", True),
        ("inputs.flag == False", True),
        ("inputs.none == null", True),
        ("inputs.none is None", True),
        ("inputs.mode is not null", True),
        ("'a' in inputs.tags", True),
        ("'c' not in inputs.tags", True),
        ("inputs.mode in ['fast', 'slow']", True),
        ("inputs.mode in ('slow',)", False),
        ("'as' in inputs.mode", True),
        ("len(inputs.tags) == 2", True),
        ("inputs.deep.x-y[1] == 2", True),
        ("inputs.score > -1", True),
        ("${inputs.mode} == 'fast'", True),
        ("  ${ inputs.mode } == 'fast'", True),
        ("inputs.tags", True),
        ("inputs.one == true", False),
        ("inputs.mode == 'inputs.mode'", False),
        (r"inputs.mode == 'it\'s \\ \n'", False),
        ("inputs.score > 1e-3", True),
        ('steps.mode.output == "fast"', False),
    ],
)
def test_a_condition_holds_or_does_not(text: str, expected: bool) -> None:
    condition = read_condition(text)

    if "steps" in text:
        assert condition.references == (Reference("steps", ("mode", "output")),)
    else:
        assert condition.holds(lookup) is expected


def test_references_are_listed_each_once() -> None:
    condition = read_condition("inputs.a > 1 and steps.b.out.c == inputs.a and item.x")

    assert [str(one) for one in condition.references] == ["inputs.a", "steps.b.out.c", "item.x"]


def test_only_what_the_answer_depends_on_is_looked_up() -> None:
    asked = []

    def listening(reference: Reference) -> Any:
        asked.append(str(reference))
        return lookup(reference)

    assert read_condition("inputs.flag and inputs.missing").holds(listening) is False
    assert asked == ["inputs.flag"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "inputs.a ==",
        "inputs.a = 1",
        "__import__('os')",
        "inputs.a.b()",
        "len(inputs.a, 1)",
        "len(*inputs.a)",
        "len",
        "(lambda: 1)()",
        "[x for x in inputs.a]",
        "inputs.a + 1",
        "9 ** 9 ** 9",
        "f'{inputs.a}'",
        "'abc'[0]",
        "().__class__",
        "_0 == 1",
        "unknown == 1",
        "inputs.a; inputs.b",
        "(inputs.a := 1)",
        "b'x' == inputs.a",
        "1j == 1",
        "... == 1",
        "-'x' == 1",
        "'${inputs.mode}' == 'fast'",
        "inputs.a if inputs.b else inputs.c",
        r"inputs.a == '\d'",
        "1and 2",
        "len(len)",
        "\0",
        "not " * 240 + "true",
        "(" * 400 + "1" + ")" * 400,
        "1 == " * 150 + "1",
        "x" * (LONGEST + 1),
    ],
)
def test_anything_beyond_the_language_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        read_condition(text)


@pytest.mark.parametrize(
    "text", ["inputs.mode > 1", "len(inputs.score) > 1", "'a' in inputs.score", "1 in inputs.mode"]
)
def test_values_that_cannot_be_compared_are_a_failure_and_not_an_answer(text: str) -> None:
    with pytest.raises(StepFailed, match="cannot be decided"):
        read_condition(text).holds(lookup)


@given(st.text("inputs.ab ()[]'\"=<>!notandr0123456789${}_-,\\", max_size=60))
def test_a_condition_is_understood_or_refused_and_nothing_else(text: str) -> None:
    try:
        condition = read_condition(text)
    except SpecError:
        return
    with contextlib.suppress(StepFailed):
        assert condition.holds(lambda _: 1) in (True, False)
