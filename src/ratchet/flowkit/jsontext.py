"""JSON as a workflow may contain it: finite numbers, real characters, bounded depth, no key twice."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from .errors import SpecError

DEEPEST = 100
LARGEST = 64 * 1024 * 1024


def load_json(text: str | bytes, *, largest: int = LARGEST) -> Any:
    """The value that a JSON document says, with or without a byte order mark. Raises `SpecError`."""
    if len(text) > largest:
        raise SpecError([f"the document has {len(text):,} characters; at most {largest:,} are read"])
    try:
        shown = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        value = decoder().decode(shown)
    except json.JSONDecodeError as error:
        raise SpecError([f"line {error.lineno}, column {error.colno}: {error.msg}"]) from None
    except UnicodeDecodeError as error:
        raise SpecError([f"the document is not UTF-8: {error.reason} at byte {error.start}"]) from None
    except RecursionError:
        raise SpecError(["the document is nested too deeply"]) from None
    except ValueError as error:
        raise SpecError([str(error)]) from None
    require_json(value)
    return value


def decoder(*, strict: bool = True) -> json.JSONDecoder:
    """Reads JSON and nothing that only Python calls JSON. `strict=False` lets a line break stand inside a text."""
    return json.JSONDecoder(
        object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite, strict=strict
    )


def require_json(value: Any, where: str = "") -> None:
    """Raise `SpecError` if a value could not be written as JSON, sent or stored everywhere."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        inner, depth = waiting.pop()
        problem = _problem(inner) if depth <= DEEPEST else "is nested too deeply"
        if problem:
            raise SpecError([f"{where or 'the document'} {problem}"])
        if isinstance(inner, dict):
            waiting.extend((each, depth + 1) for pair in inner.items() for each in pair)
        elif isinstance(inner, list | tuple):
            waiting.extend((each, depth + 1) for each in inner)


def _problem(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.isascii() and "\0" not in value else _problem_of_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"has the number {value}, which JSON does not know"
    if isinstance(value, dict):
        bad = next((key for key in value if not isinstance(key, str)), None)
        return None if bad is None else f"has the key {bad!r}, which is no text"
    if value is None or isinstance(value, bool | int | float | list | tuple):
        return None
    return f"has a {type(value).__name__}, which JSON does not know"


def _problem_of_text(text: str) -> str | None:
    if "\0" in text:
        return "has a NUL character in a text"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has half of a surrogate pair in a text"
    return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice[:100]!r} is twice in one object")
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number
