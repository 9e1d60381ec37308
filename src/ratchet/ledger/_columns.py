"""Column types that store hostile text on both databases without loss of safety."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Misuse


class Json(sa.types.TypeDecorator[Any]):
    """A JSON value as ASCII text.

    Plain text rather than a database's own JSON type: escaped, it can hold NUL characters and lone surrogates, which
    PostgreSQL refuses otherwise. `None` is SQL NULL.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else to_json(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else json.loads(value)


class Words(sa.types.TypeDecorator[str]):
    """Text from anywhere. Characters that a database cannot hold become the replacement character."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is None:
            return None
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def to_json(value: Any) -> str:
    """`value` as JSON, or `Misuse` that says which part cannot be stored."""
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise Misuse(
            f"{_culprit(value)} cannot be stored as JSON: {error}",
            hint="use only null, booleans, finite numbers, text, lists and objects with text keys",
        ) from error


def _culprit(value: Any, path: str = "the value", depth: int = 8) -> str:
    """The part of `value` that JSON does not have, as far as it can be told."""
    parts: list[tuple[str, Any]] = []
    if depth and isinstance(value, dict):
        parts = [(f"{path}[{key!r}]", part) for key, part in value.items()]
    elif depth and isinstance(value, list | tuple):
        parts = [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    for name, part in parts:
        try:
            json.dumps(part, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return _culprit(part, name, depth - 1)
    shown = repr(value) if isinstance(value, float) else f"of type {type(value).__name__}"
    return f"{path} ({shown})"
