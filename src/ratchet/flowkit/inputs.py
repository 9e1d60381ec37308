"""The values that a workflow is started with: checked against what it declares, defaults filled in."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import SpecError, trimmed
from .jsontext import LARGEST, load_json, require_json
from .spec import WorkflowInput, WorkflowSpec

# A schema may refer to itself, and so may a default lead back to its own.
_DEEPEST = 100
_LONGEST = 500
_MOST_WORK = 10**8
TYPES = ("string", "number", "integer", "boolean", "object", "array")
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
}


def with_defaults(value: Any, schema: Any) -> Any:
    """`value` with the defaults of `schema` for the properties that it lacks, in objects inside of it as well.

    What is there stays; a null counts as left out where the type of its property has none, since that is what a
    workflow passes on for an input that was not given. An object that is not there is made only by a default of its
    own. Alternatives (`anyOf`, `oneOf`) are left alone: which one is meant is not known before the value is complete.
    """
    return _filled(value, schema, schema, _DEEPEST)


def _filled(value: Any, schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or not depth or not isinstance(value, dict | list):
        return value
    if isinstance(reference := schema.get("$ref"), str):
        value = _filled(value, _referred(reference, root), root, depth - 1)
    for each in _list(schema.get("allOf")):
        value = _filled(value, each, root, depth - 1)
    if isinstance(value, list):
        first = _list(schema.get("prefixItems"))
        below = [*first, *[schema.get("items")] * (len(value) - len(first))]
        return [_filled(item, each, root, depth - 1) for item, each in zip(value, below, strict=False)]
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return value
    filled = dict(value)
    for name, each in properties.items():
        if _is_left_out(filled, name, each) and (declared := _declared(each, root)) is not None:
            filled[name] = copy.deepcopy(declared[0])
        if name in filled:
            filled[name] = _filled(filled[name], each, root, depth - 1)
    return filled


def _is_left_out(value: Mapping[str, Any], name: str, schema: Any) -> bool:
    if name not in value:
        return True
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    return value[name] is None and kinds is not None and kinds != "null" and "null" not in _list(kinds)


def _declared(schema: Any, root: Any) -> tuple[Any] | None:
    """The default of one property, which may be null; nothing if it has none."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return None
        if "default" in schema:
            return (schema["default"],)
        schema = _referred(schema.get("$ref"), root)
    return None


def _referred(reference: Any, root: Any) -> Any:
    """What a reference inside the document leads to; nothing for one that leads nowhere, which a check will name."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = root
    for part in filter(None, reference.removeprefix("#").split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern, if anything is."""
    if len(pattern) > _LONGEST:
        return f"has more than {_LONGEST} characters"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    if re.search(r"\)[*+{]|\\[1-9]|\(\?P=", _plain(pattern)):
        return "repeats a group or refers back to one, which can take forever to match"
    return None


def fits(text: str, pattern: str) -> bool:
    """Whether the pattern occurs in the text. Raises `SpecError` if finding out could take too long."""
    problem = pattern_problem(pattern)
    if problem is None and _work(pattern, len(text)) > _MOST_WORK:
        problem = f"is too costly for a text of {len(text)} characters"
    if problem:
        raise SpecError([f"the pattern {pattern[:100]} {problem}"])
    return re.search(pattern, text) is not None


def _work(pattern: str, length: int) -> int:
    """An upper bound of the steps that a backtracking match takes when no group is repeated."""
    plain = _plain(pattern)
    loops = len(re.findall(r"[*+]|\{\d*,?\d*\}", plain))
    anchored = plain.startswith("^") and "|" not in plain
    choices = plain.count("?") + plain.count("|")
    return int((length + 1) ** min(loops + (not anchored), 20) * 2 ** min(choices, 64))


def _plain(pattern: str) -> str:
    """The pattern with every escaped character and every set replaced by one letter; references back stay."""
    return re.sub(r"\\[^1-9]|\[\^?\]?(?:[^\]\\]|\\.)*\]", "x", pattern, flags=re.DOTALL)


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


def given_text(text: str) -> str:
    """What a value on a command line means: `@FILE` is the text of that file, `@@x` the text `@x`.

    Raises `SpecError` for a file that cannot be read, is too large or is not UTF-8.
    """
    if not text.startswith("@"):
        return text
    if text.startswith("@@"):
        return text[1:]
    file = text[1:]
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise SpecError([f"{file} is too large: at most {LARGEST:,} bytes are read"])
        return content.decode("utf-8-sig")
    except OSError as error:
        reason = f"{file or '@'} cannot be read: {error.strerror or error}"
        raise SpecError([f"{reason}; write @{text[:100]} for the text {text[:100]!r}"]) from None
    except UnicodeDecodeError as error:
        raise SpecError([f"{file} is not UTF-8: {error.reason} at byte {error.start}"]) from None


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
