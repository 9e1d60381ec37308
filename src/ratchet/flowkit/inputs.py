"""The values that a workflow is started with, checked against what it declares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .defaults import with_defaults
from .errors import SpecError
from .jsontext import load_json, require_json
from .patterns import fits
from .problems import trimmed
from .spec import WorkflowInput, WorkflowSpec

TYPES = ("string", "number", "integer", "boolean", "object", "array")
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
}
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def check_inputs(spec: WorkflowSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every declared input with its value, defaults filled in. Raises `SpecError` with all that is wrong."""
    declared = {each.name: each for each in spec.inputs}
    problems = [_unknown(name, declared) for name in given if name not in declared]
    values: dict[str, Any] = {}
    for each in spec.inputs:
        value = given.get(each.name)
        value = with_defaults(each.default if value is None else value, each.extra)
        if value is None and each.required:
            problems.append(f"Missing required input: {each.name}")
        elif value is not None:
            problems += value_problems(each, value)
        values[each.name] = value
    if problems:
        raise SpecError(trimmed(problems))
    return values


def parse_input_texts(spec: WorkflowSpec, given: Mapping[str, str]) -> dict[str, Any]:
    """The texts of a command line as values of the declared types. Raises `SpecError` with all that is wrong."""
    declared = {each.name: each for each in spec.inputs}
    problems = []
    values = {}
    for name, text in given.items():
        if name not in declared:
            problems.append(_unknown(name, declared))
            continue
        try:
            values[name] = _parsed(text, declared[name].type)
        except (SpecError, ValueError):
            problems.append(f"Input {name} must be {_said(declared[name].type)}, not {text[:100]!r}")
    if problems:
        raise SpecError(trimmed(problems))
    return values


def has_type(value: Any, name: str) -> bool:
    """Whether a value has a type of JSON Schema. A type that is not known fits nothing."""
    if name == "integer":
        return not isinstance(value, bool) and (
            isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        )
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _KINDS.get(name, ()))


def value_problems(declared: WorkflowInput, value: Any) -> list[str]:
    """What keeps a value from being that of this input."""
    try:
        require_json(value, f"Input {declared.name}")
    except SpecError as error:
        return error.problems
    if not has_type(value, declared.type):
        return [f"Input {declared.name} must be {_said(declared.type)}, not {_shown(value)}"]
    choices = declared.extra.get("enum")
    if isinstance(choices, list) and value not in choices:
        return [f"Input {declared.name} must be one of {json.dumps(choices)}, not {_shown(value)}"]
    pattern = declared.extra.get("pattern")
    if isinstance(pattern, str) and isinstance(value, str):
        try:
            if not fits(value, pattern):
                return [f"Input {declared.name} must fit the pattern {pattern}, and {_shown(value)} does not"]
        except SpecError as error:
            return [f"Input {declared.name}: {error}"]
    return []


def _parsed(text: str, kind: str) -> Any:
    if kind == "string":
        return text
    if kind == "boolean":
        word = text.strip().lower()
        if word not in _TRUE + _FALSE:
            raise ValueError(text)
        return word in _TRUE
    value = load_json(text)
    if not has_type(value, kind):
        raise ValueError(text)
    return value


def _unknown(name: str, declared: Mapping[str, WorkflowInput]) -> str:
    known = ", ".join(declared) or "none"
    return f"Unknown input: {name} (the workflow has {known})"


def _said(kind: str) -> str:
    return f"an {kind}" if kind[:1] in "aoi" else f"a {kind}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:97]}…"
