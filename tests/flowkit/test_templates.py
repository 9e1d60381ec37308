from __future__ import annotations

from typing import Any

import pytest

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.templates import fill


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("Hello {name}", "Hello Ada"),
        ("{name}{name}", "AdaAda"),
        ("{items}", '["é", 1]'),
        ("{{name}}", "{name}"),
        ('{{"a": "{name}"}}', '{"a": "Ada"}'),
        # No template of `str.format`: only the names of values are replaced.
        ('{"a": "{name}"}', '{"a": "Ada"}'),
        ("{name} {", "Ada {"),
        ("{name.__class__} {other}", "{name.__class__} {other}"),
        ("{name!r} {name}", "{name!r} Ada"),
        ("{0}", "{0}"),
        ("", ""),
    ],
)
def test_a_name_in_braces_stands_for_its_value(template: str, filled: str) -> None:
    values: dict[str, Any] = {"name": "Ada", "items": ["é", 1], "0": "{0}"}
    assert fill(template, values) == filled


def test_a_name_without_a_value_is_told() -> None:
    with pytest.raises(StepFailed, match=r"\{topic\}.*name") as failed:
        fill("{name} on {topic}", {"name": "Ada"})
    assert failed.value.final


def test_a_value_is_not_read_as_a_template() -> None:
    assert fill("{a}", {"a": "{b}", "b": "secret"}) == "{b}"
