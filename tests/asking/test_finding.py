"""JSON in what an engine said: bare, fenced or in prose, and never a part of what is broken."""

from __future__ import annotations

import json

import pytest

from ratchet.question import find_object


@pytest.mark.parametrize(
    "text",
    [
        '{"steps": 1}',
        'Here:\n```json\n{"steps": 1}\n```\n',
        'Not {this}, nor {"that": 2}, but {"steps": 1} it is.',
        '{"steps": 0} was my first idea. Better: {"steps": 1}',
        '{"broken": [ and then {"steps": 1}',
        'With a line break inside: {"note": "a\nb", "steps": 1}',
    ],
)
def test_the_last_object_with_the_key_is_found(text: str) -> None:
    assert find_object(text, "steps")["steps"] == 1


def test_fences_inside_of_texts_end_nothing() -> None:
    given = {"steps": "```sh\nls\n```"}
    assert find_object(f"```json\n{json.dumps(given)}\n```", "steps") == given


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'nothing'"),
        ("I would rather not.", "I would rather not"),
        ('{"other": 1}', "no JSON object with steps"),
        ('{"steps": [', "broken"),
        ('{"steps": 1, "steps": 2}', "is twice"),
        ('{"steps": NaN}', "NaN"),
        ('{"a":' * 50_000, "too deeply"),
    ],
)
def test_without_one_the_reason_is_told(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="answer") as refused:
        find_object(text, "steps")
    assert says in str(refused.value)
