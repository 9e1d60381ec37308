"""Columns: types that store hostile text on both databases without loss of safety, and the kinds that recur."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from ratchet.kernel import Misuse, sendable


class Json(sa.types.TypeDecorator[Any]):
    """A JSON value as ASCII text.

    Plain text rather than a database's own JSON type: escaped, it can hold NUL characters and lone surrogates, which
    PostgreSQL refuses otherwise. `None` is SQL NULL.
    """

    impl = sa.Text
    cache_ok = True

    # Given as they are, without a wrapper around them: they run for most values of most statements.
    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], str | None]:
        return _json

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[str | None], Any]:
        return _value


class Words(sa.types.TypeDecorator[str]):
    """Text from anywhere. Characters that a database cannot hold become the replacement character."""

    impl = sa.Text
    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[str | None], str | None]:
        return _words


def _json(value: Any) -> str | None:
    return None if value is None else to_json(value)


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _words(value: str | None) -> str | None:
    if value is None or (type(value) is str and value.isascii() and "\x00" not in value):
        return value
    return sendable(value.replace("\x00", "\ufffd"))


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


_CONDITION = "condition"
Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# Compared by code points on both databases, so that "every type that starts with run." is a range of the index.
Type = Words().with_variant(Words(collation="C"), "postgresql")


def numbered() -> sa.Column[int]:
    return sa.Column("id", Number, primary_key=True, autoincrement=True)


def to(table: str, *, required: bool = False) -> sa.Column[int]:
    column = {
        "projects": "project_id",
        "runs": "run_id",
        "steps": "step_id",
        "attempts": "attempt_id",
        "tools": "tool_id",
    }[table]
    return sa.Column(column, Number, sa.ForeignKey(f"{table}.id"), nullable=not required)


def measures() -> list[sa.Column[int]]:
    """What was used, as `ratchet.kernel.Usage` counts it."""
    names = ("input_tokens", "cached_tokens", "output_tokens", "cost_microusd", "wall_ms", "trials")
    counted = [sa.Column(name, Number, nullable=False) for name in names]
    return [*counted, sa.Column("unpriced_tokens", Number, nullable=False, server_default="0")]


def partial(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    """An index of the rows that meet a condition, once `apply_condition` was called for it.

    To name the condition of a dialect imports the dialect, and only what makes or compares tables needs it.
    """
    return sa.Index(name, *columns, unique=unique, info={_CONDITION: where})


def apply_condition(index: sa.Index) -> None:
    if where := index.info.get(_CONDITION):
        for dialect in ("sqlite", "postgresql"):
            index.dialect_options[dialect]["where"] = sa.text(where)
