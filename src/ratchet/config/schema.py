"""The tree of valid keys, read off the settings themselves, and what is wrong with a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ratchet.config.keys import Keys
from ratchet.config.redaction import MASK, DatabaseUrl, mask_text
from ratchet.config.settings import Settings
from ratchet.config.sources import DATABASE_URL, Given, Key, dotted, most_like, nest, variable
from ratchet.kernel import ConfigError

ANY = "NAME"
"""Stands for the names that a person chooses, as in `queues.NAME.concurrency`."""


@dataclass(frozen=True, slots=True)
class KeyLeaf:
    """A key that holds a value."""

    key: Key
    field: FieldInfo

    @property
    def is_secret(self) -> bool:
        return SecretStr in (self.field.annotation, *get_args(self.field.annotation))


@dataclass(frozen=True, slots=True)
class KeyTable:
    """A key that holds further keys."""

    key: Key
    field: FieldInfo


def entries(model: type[BaseModel] = Keys, prefix: Key = ()) -> Iterator[KeyLeaf | KeyTable]:
    """Every table and leaf, a table before what it holds, and its own values before the tables in it."""
    inner_tables = []
    for name, field in model.model_fields.items():
        key = (*prefix, name, *_chosen(field.annotation))
        if _model_of(field.annotation) is None and ANY not in key[len(prefix) :]:
            yield KeyLeaf(key, field)
        else:
            inner_tables.append((key, field))
    for key, field in inner_tables:
        inner = _model_of(field.annotation)
        if inner is None:
            yield KeyLeaf(key, field)
        else:
            yield KeyTable(key, field)
            yield from entries(inner, key)


def leaves() -> list[KeyLeaf]:
    return [entry for entry in entries() if isinstance(entry, KeyLeaf)]


def default_of(leaf: KeyLeaf, home: Path) -> Any:
    """What a setting is when nobody sets it; nothing for one that is not set by default."""
    if leaf.key == DATABASE_URL:
        return f"sqlite:///{home.absolute()}/ledger.db"
    value = leaf.field.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else value


def match(key: Key) -> KeyLeaf | KeyTable | None:
    """The entry that `key` names; the names a person chose match `ANY`."""
    for entry in entries():
        if len(key) <= len(entry.key) and _fits(key, entry.key[: len(key)]):
            return entry if len(key) == len(entry.key) else KeyTable(key, entry.field)
    return None


def parts_of(table: KeyTable) -> list[str]:
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


def check_keys(sources: Iterable[Mapping[Key, Given]]) -> None:
    """Raise `ConfigError` naming every key that does not exist, and the nearest one that does."""
    found = [_misplaced(key, each) for given in sources for key, each in given.items()]
    if problems := [problem for problem in found if problem]:
        raise _error(problems, "rename or remove it")


def checked_settings(given: Mapping[Key, Given], database_url: DatabaseUrl) -> Settings:
    """The settings with what was given. Raises `ConfigError` naming every value that does not fit."""
    tables = nest({key: each.value for key, each in given.items() if key != DATABASE_URL})
    problems: list[tuple[Key, str]] = []
    for name, values in tables.items():
        try:
            Settings(database_url, {name: values})
        except ValidationError as error:
            problems += [((name, *map(str, each["loc"])), each["msg"]) for each in error.errors()]
    if problems:
        raise explain_invalid(problems, given)
    return Settings(database_url, tables)


def explain_invalid(problems: Sequence[tuple[Key, str]], given: Mapping[Key, Given]) -> ConfigError:
    """What is wrong with values, with the key, the value and the place it came from."""
    return _error([_invalid(key, message, given) for key, message in problems], None)


def _misplaced(key: Key, given: Given) -> str | None:
    found = match(key)
    if isinstance(found, KeyLeaf) or (isinstance(found, KeyTable) and given.value == {}):
        return None
    if isinstance(found, KeyTable):
        return f"{_place(key, given)} is a table, not a value; it holds {', '.join(parts_of(found))}"
    like = variable(nearest(key)) if _is_variable(given) else dotted(nearest(key))
    return f"{_place(key, given)} is unknown; the nearest is {like}"


def _invalid(key: Key, message: str, given: Mapping[Key, Given]) -> str:
    rule = re.sub("^(Input|Value|String) should", "must", message.removeprefix("Value error, "))
    each = given.get(key)
    if each is None:
        # A rule about several keys of a table, whose message names them.
        return f"{dotted(key)}: {rule}"
    if not rule.startswith("must"):
        return f"{_place(key, each)} {rule}"
    return f"{_place(key, each)} is {_shown(key, each.value)}; it {rule}"


def _place(key: Key, given: Given) -> str:
    if _is_variable(given):
        return given.where
    return f"{dotted(key)} ({given.where})"


def _is_variable(given: Given) -> bool:
    return given.source == "environment"


def _shown(key: Key, value: Any) -> str:
    found = match(key)
    return MASK if isinstance(found, KeyLeaf) and found.is_secret else mask_text(repr(value))


def _error(problems: list[str], hint: str | None) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(problems[0], hint=hint)
    return ConfigError(f"{len(problems)} settings are wrong:\n  " + "\n  ".join(problems), hint=hint)
