"""Structured answers: found in what a model said, and held against the schema that was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class NotAnAnswer(ValueError):
    """What was said is not JSON, or not as the schema wants it; the message can be shown to the model."""


def parse_answer(text: str, schema: Mapping[str, Any]) -> Any:
    """The JSON in `text`, bare or in a fence, valid by `schema`. Raises `NotAnAnswer`."""
    return validate_answer(_json_in(text), schema)


def validate_answer(value: Any, schema: Mapping[str, Any]) -> Any:
    """`value` itself, if it is as `schema` wants it. Raises `NotAnAnswer`."""
    if told := misfits(value, schema):
        raise NotAnAnswer(f"the answer does not fit its schema: {told}")
    return value


def misfits(value: Any, schema: Mapping[str, Any], *, judge: Any = None) -> str | None:
    """What of `value` is not as `schema` wants it, with the path of each part; nothing if it fits.

    `judge` is the class of the validator, if not the usual one.
    """
    # Slow to import, and most sessions answer nothing structured.
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # An empty registry: the usual one would fetch what a `$ref` points at.
    validator = (judge or Draft202012Validator)(schema, registry=Registry())
    try:
        problems = sorted(validator.iter_errors(value), key=lambda each: list(map(str, each.path)))
    except (Unresolvable, RecursionError) as error:
        return f"the schema cannot be applied: {type(error).__name__}: {error}"
    return "; ".join(f"{each.json_path}: {each.message[:200]}" for each in problems[:5]) or None


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that no answer can be held against. Raises `ValueError`."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"the output schema is not a JSON Schema: {error.message}") from None


def _json_in(text: str) -> Any:
    for candidate in (text, *_FENCE.findall(text)):
        try:
            return json.loads(candidate, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            continue
    shown = text.strip()[:200] or "nothing"
    raise NotAnAnswer(f"the answer is not JSON: {shown!r}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
