"""Saying what is wrong with a configuration, in words that lead to the mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ratchet.config.database_url import MASK, DatabaseUrl, mask_text
from ratchet.config.schema import Leaf, Table, match, nearest, parts_of
from ratchet.config.settings import Settings
from ratchet.config.sources import DATABASE_URL, Given, Key, dotted, nest, variable
from ratchet.kernel import ConfigError


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
    if isinstance(found, Leaf) or (isinstance(found, Table) and given.value == {}):
        return None
    if isinstance(found, Table):
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
    return MASK if isinstance(found, Leaf) and found.is_secret else mask_text(repr(value))


def _error(problems: list[str], hint: str | None) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(problems[0], hint=hint)
    return ConfigError(f"{len(problems)} settings are wrong:\n  " + "\n  ".join(problems), hint=hint)
