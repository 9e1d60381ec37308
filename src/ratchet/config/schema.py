"""The tree of valid keys, read off the settings themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ratchet.config.keys import Keys
from ratchet.config.sources import DATABASE_URL, Key, most_like

ANY = "NAME"
"""Stands for the names that a person chooses, as in `queues.NAME.concurrency`."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A key that holds a value."""

    key: Key
    field: FieldInfo

    @property
    def is_secret(self) -> bool:
        return SecretStr in (self.field.annotation, *get_args(self.field.annotation))


@dataclass(frozen=True, slots=True)
class Table:
    """A key that holds further keys."""

    key: Key
    field: FieldInfo


def entries(model: type[BaseModel] = Keys, prefix: Key = ()) -> Iterator[Leaf | Table]:
    """Every table and leaf, a table before what it holds, and its own values before the tables in it."""
    inner_tables = []
    for name, field in model.model_fields.items():
        key = (*prefix, name, *_chosen(field.annotation))
        if _model_of(field.annotation) is None and ANY not in key[len(prefix) :]:
            yield Leaf(key, field)
        else:
            inner_tables.append((key, field))
    for key, field in inner_tables:
        inner = _model_of(field.annotation)
        if inner is None:
            yield Leaf(key, field)
        else:
            yield Table(key, field)
            yield from entries(inner, key)


def leaves() -> list[Leaf]:
    return [entry for entry in entries() if isinstance(entry, Leaf)]


def default_of(leaf: Leaf, home: Path) -> Any:
    """What a setting is when nobody sets it; nothing for one that is not set by default."""
    if leaf.key == DATABASE_URL:
        return f"sqlite:///{home.absolute()}/ledger.db"
    value = leaf.field.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else value


def match(key: Key) -> Leaf | Table | None:
    """The entry that `key` names; the names a person chose match `ANY`."""
    for entry in entries():
        if len(key) <= len(entry.key) and _fits(key, entry.key[: len(key)]):
            return entry if len(key) == len(entry.key) else Table(key, entry.field)
    return None


def parts_of(table: Table) -> list[str]:
    """The names directly inside `table`."""
    depth = len(table.key)
    deeper = [entry.key for entry in entries() if len(entry.key) > depth]
    return list(dict.fromkeys(key[depth] for key in deeper if _fits(table.key, key[:depth])))


def nearest(key: Key) -> Key:
    """The valid leaf that is spelled most like `key`."""
    return most_like(key, (_named_like(leaf.key, key) for leaf in leaves()))


def _fits(key: Key, pattern: Key) -> bool:
    return all(want in (have, ANY) for have, want in zip(key, pattern, strict=True))


def _named_like(pattern: Key, key: Key) -> Key:
    """`pattern` with the name that `key` has in the place of `ANY`."""
    return tuple(
        key[index] if part == ANY and index < len(key) - 1 else part for index, part in enumerate(pattern)
    )


def _chosen(annotation: Any) -> Key:
    """One `ANY` for each level of names that a person chooses."""
    return (ANY, *_chosen(get_args(annotation)[-1])) if get_origin(annotation) is dict else ()


def _model_of(annotation: Any) -> type[BaseModel] | None:
    while get_origin(annotation) is dict:
        annotation = get_args(annotation)[-1]
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
