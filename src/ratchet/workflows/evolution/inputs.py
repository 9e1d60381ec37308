"""Inputs that no caller has sent yet, on which two versions of a tool must agree.

They are made from the tool's input schema (or else from the types that its function declares) and by small changes of
inputs that are known: a blank behind a word, an element twice, a number one higher. Texts and numbers come from a
small stock, so that equal and nearly equal values meet, which is where two programs differ; and from the programs
themselves, since what one asks for by name it may treat in a way of its own. The same seed makes the same inputs.
"""

from __future__ import annotations

import ast
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ratchet.tools.definition import Tool
from ratchet.tools.fit import misfit
from ratchet.workflows.evolution.graph import declared_inputs

_TEXTS = (
    *(
        "",
        "a",
        "a ",
        " a",
        "A",
        "b",
        "ab",
        "a b",
        "a  b",
        "a-b",
        "a,b",
        "a\nb",
        "\t",
        "0",
        "-1",
        "1.5",
        "Äpfel",
    ),
    *(
        "STRASSE",
        "straße",
        "é",
        "e\u0301",
        "日本",
        "\N{GRINNING FACE}",
        "It's <b>",
        '"',
        "\\",
        "null",
        "Hello, World!",
    ),
)
_WHOLE = (0, 1, -1, 2, 3, 7, 10, 99, 100, -10, 1000, 2**53 + 1)
_REAL = (0.0, 0.5, -0.5, 1.0, 1.5, 2.5, 0.1, 1e-9, -3.25, 100.0, 1e15)
_DEEPEST = 4
_MOST_ELEMENTS = 5
_MOST_PLACES = 60
# So many candidates are made for each input that is asked for: some do not fit the schema, some are there already.
_CANDIDATES = 20
_MOST_WORDS = 40
_MOST_LENGTH = 5_000
_Place = tuple[str | int, ...]


class _Chance(random.Random):
    """Chance that deals a stock like cards: each once before any comes again."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self._decks: dict[tuple[Any, ...], list[Any]] = {}

    def deal(self, stock: tuple[Any, ...]) -> Any:
        deck = self._decks.setdefault(stock, [])
        if not deck:
            deck += stock
            self.shuffle(deck)
        return deck.pop()


def generated_inputs(
    tool: Tool, known: Sequence[Mapping[str, Any]], most: int, *, seed: str, words: Iterable[Any] = ()
) -> list[dict[str, Any]]:
    """Up to `most` different inputs that fit the tool's schema and are not among the `known` ones. Up to half of them
    have one of `words`, texts and numbers of the programs, in the place of a value or as its length."""
    chance = _Chance(seed)
    schema = tool.input_schema or declared_schema(tool)
    sources = [_mutations(known, chance)] if known else []
    if schema and schema.get("properties"):
        sources.append(_of_schema(schema, chance))
    seen = {_text(each) for each in known}
    found: list[dict[str, Any]] = []
    turns = itertools.chain.from_iterable(zip(*sources, strict=False))
    named = itertools.islice(
        _named(known or _few(_of_schema(schema or {}, chance)), words, chance), most // 2
    )
    for value in itertools.chain(named, itertools.islice(turns, most * _CANDIDATES)):
        if len(found) == most:
            break
        text = _text(value)
        if text not in seen and misfit(value, schema or None) is None:
            seen.add(text)
            found.append(value)
    return found


def declared_schema(tool: Tool) -> dict[str, Any] | None:
    """The inputs of a tool without a schema: those of the workflow, or by the annotations of the function that is
    called."""
    if tool.workflow is not None:
        return declared_inputs(tool.workflow)
    if tool.python is None:
        return None
    try:
        parsed = ast.parse(tool.python.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(parsed):
        if isinstance(node, ast.FunctionDef) and node.name == tool.python.entry:
            named = [*node.args.args, *node.args.kwonlyargs]
            properties = {each.arg: _of_annotation(each.annotation) for each in named if each.annotation}
            return {
                "type": "object",
                "properties": properties,
                "required": [
                    each.arg for each in node.args.args[: len(node.args.args) - len(node.args.defaults)]
                ],
            }
    return None


def _of_annotation(found: ast.expr | None) -> dict[str, Any]:
    kinds = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array"}
    match found:
        case ast.Name(id=name) if name in kinds:
            return {"type": kinds[name]}
        case ast.Name(id="dict"):
            return {"type": "object"}
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            return {"type": "array", "items": _of_annotation(inner)}
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
            return {"type": "object", "additionalProperties": _of_annotation(inner)}
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return {"anyOf": [_of_annotation(left), _of_annotation(right)]}
        case ast.Constant(value=None):
            return {"type": "null"}
    return {}


def _of_schema(schema: Mapping[str, Any], chance: _Chance) -> Iterator[dict[str, Any]]:
    while True:
        yield _made(schema, schema, chance, 0)


def _made(schema: Any, root: Mapping[str, Any], chance: _Chance, depth: int) -> Any:
    """A value that a schema asks for, as far as its common words say; what does not fit is left out by the caller."""
    if not isinstance(schema, Mapping):
        return chance.deal(_TEXTS)
    if isinstance(reference := schema.get("$ref"), str):
        return _made(_referred(reference, root) if depth < _DEEPEST else {}, root, chance, depth + 1)
    for word in ("enum", "examples"):
        if isinstance(choices := schema.get(word), list) and choices:
            return chance.choice(choices)
    if "const" in schema:
        return schema["const"]
    for word in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(word), list) and choices:
            return _made(chance.choice(choices), root, chance, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    match chance.choice(kind) if isinstance(kind, list) and kind else kind:
        case "integer":
            return int(_number(schema, chance, _WHOLE))
        case "number":
            return _number(schema, chance, (*_WHOLE, *_REAL))
        case "boolean":
            return chance.random() < 0.5
        case "null":
            return None
        case "array":
            return _array(schema, root, chance, depth)
        case "object":
            return _object(schema, root, chance, depth)
        case "string":
            return _string(schema, chance)
    return chance.choice((*_TEXTS, *_WHOLE, None, True))


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part, {}) if part and isinstance(found, Mapping) else found
    return found


def _number(schema: Mapping[str, Any], chance: _Chance, stock: tuple[float, ...]) -> float:
    low, high = schema.get("minimum"), schema.get("maximum")
    edges = [edge for edge in (low, high) if edge is not None]
    if low is not None and high is not None and chance.random() < 0.5:
        value: float = chance.randint(int(low), int(high))
    else:
        value = chance.deal((*stock, *(edge + by for edge in edges for by in (-1, 0, 1))))
    if (step := schema.get("multipleOf")) and isinstance(step, int):
        value = value // step * step
    return value


def _string(schema: Mapping[str, Any], chance: _Chance) -> str:
    text: str = chance.deal(_TEXTS)
    if chance.random() < 0.4:
        text += chance.choice((" ", "-", "", ",")) + chance.choice(_TEXTS)
    return text.ljust(int(schema.get("minLength", 0)), "x")[: schema.get("maxLength")]


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], chance: _Chance, depth: int) -> list[Any]:
    least = int(schema.get("minItems", 0))
    size = chance.randint(least, max(least, 1 if depth > _DEEPEST else _MOST_ELEMENTS))
    found: list[Any] = []
    while len(found) < size:
        if found and chance.random() < 0.4:
            # What two versions differ in is often what counts as the same.
            twin = chance.choice(found)
            found.append(chance.choice([twin, *_changed(twin, chance)]))
        else:
            found.append(_made(schema.get("items", {}), root, chance, depth + 1))
    return found


def _object(
    schema: Mapping[str, Any], root: Mapping[str, Any], chance: _Chance, depth: int
) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    found = {
        name: _made(each, root, chance, depth + 1)
        for name, each in properties.items()
        if name in required or (depth <= _DEEPEST and chance.random() < 0.7)
    }
    others = schema.get("additionalProperties")
    if not properties and others is not False:
        for _ in range(chance.randint(0, 3)):
            found[chance.choice("abcde")] = _made(others, root, chance, depth + 1)
    return found


def _mutations(known: Sequence[Mapping[str, Any]], chance: _Chance) -> Iterator[dict[str, Any]]:
    """Known inputs with a change or several, without an end. All depths are changed equally often."""
    while True:
        value = dict(chance.choice(known))
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            places = list(itertools.islice(_places(value), _MOST_PLACES))
            depth = chance.choice(sorted({len(place) for place in places}))
            place = chance.choice([place for place in places if len(place) == depth])
            changes = _changed(_at(value, place), chance)
            changed = _with(value, place, chance.choice(changes)) if changes else value
            value = changed if isinstance(changed, dict) else value
        yield value


def _few(values: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(itertools.islice(values, 3))


def _named(
    known: Sequence[Mapping[str, Any]], words: Iterable[Any], chance: _Chance
) -> Iterator[dict[str, Any]]:
    """Known inputs with a word in one place that it fits: first each word once."""
    stock = sorted(words, key=repr)
    chance.shuffle(stock)
    turns = [
        (word, how) for how in range(4) for word in stock[:_MOST_WORDS] if how == 0 or isinstance(word, int)
    ]
    for word, how in turns:
        value = dict(chance.choice(known))
        places = list(itertools.islice(_places(value), _MOST_PLACES))
        fitting = [
            (place, put) for place in places if (put := _put(_at(value, place), word, how)) is not None
        ]
        if fitting:
            changed = _with(value, *chance.choice(fitting))
            if isinstance(changed, dict):
                yield changed


def _put(value: Any, word: Any, how: int) -> Any:
    """A word in the place of a value, or one beside it, or a value that is longer than it says."""
    match value:
        case bool() | None:
            return None
        case int() | float() if isinstance(word, int | float) and how < 3:
            near = word + (0, 1, -1)[how]
            return type(value)(near) if near == near // 1 or isinstance(value, float) else None
        case str() if isinstance(word, str):
            return word
        case str() | list() if value and isinstance(word, int) and how in (0, 3) and 0 < word < _MOST_LENGTH:
            longer = word + (how == 0)
            return (value * (longer // len(value) + 1))[:longer]
    return None


def _changed(value: Any, chance: _Chance) -> list[Any]:
    """What is next to a value."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1, -value, value * 2, 0, 1]
        case float():
            return [value + 0.5, -value, value * 1.5, float(int(value)), 0.0]
        case str():
            words = [value + " ", " " + value, value.swapcase(), value.upper(), value + "\n", value * 2]
            return [*words, value[:-1], value[::-1], value.replace(" ", "  "), chance.choice(_TEXTS), ""]
        case list():
            near = _changed(twin, chance) if value and (twin := chance.choice(value)) is not None else []
            return [[], value[:1], value[1:], value[::-1], value + value, *([*value, each] for each in near)]
        case dict():
            return [{name: each for name, each in value.items() if name != left} for left in value]
    return ["", 0]


def _places(value: Any, place: _Place = ()) -> Iterator[_Place]:
    yield place
    if isinstance(value, dict):
        for name in value:
            yield from _places(value[name], (*place, name))
    elif isinstance(value, list):
        for number in range(len(value)):
            yield from _places(value[number], (*place, number))


def _at(value: Any, place: _Place) -> Any:
    for part in place:
        value = value[part]
    return value


def _with(value: Any, place: _Place, new: Any) -> Any:
    if not place:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = _with(value[place[0]], place[1:], new)  # type: ignore[index]
    return changed


async def smallest(
    value: dict[str, Any],
    schema: Mapping[str, Any] | None,
    still: Callable[[dict[str, Any]], Awaitable[bool]],
    *,
    most: int,
) -> dict[str, Any]:
    """The smallest input that is found by taking away from `value` and of which `still` holds, in `most` questions."""
    asked, tried = 0, {_text(value)}
    while True:
        for smaller in sorted(_smaller_everywhere(value), key=_size):
            if asked == most:
                return value
            text = _text(smaller)
            if text in tried or _size(smaller) >= _size(value) or misfit(smaller, schema) is not None:
                continue
            tried.add(text)
            asked += 1
            if await still(smaller):
                value = smaller
                break
        else:
            return value


def _smaller_everywhere(value: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        made
        for place in itertools.islice(_places(value), _MOST_PLACES)
        for new in _smaller(_at(value, place))
        if isinstance(made := _with(value, place, new), dict)
    ]


def _smaller(value: Any) -> list[Any]:
    match value:
        case bool():
            return [False]
        case int() | float():
            return [0, 1, int(value // 2), int(value)]
        case str():
            half = len(value) // 2
            return [
                "",
                "a",
                value[:half],
                value[half:],
                *(value[:at] + value[at + 1 :] for at in range(len(value))),
            ]
        case list():
            half = len(value) // 2
            return [
                [],
                value[:half],
                value[half:],
                *(value[:at] + value[at + 1 :] for at in range(len(value))),
            ]
        case dict():
            return [{name: each for name, each in value.items() if name != left} for left in value]
    return []


def _size(value: Any) -> tuple[int, str]:
    text = _text(value)
    return len(text), text


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
