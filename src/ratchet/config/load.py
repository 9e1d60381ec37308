"""Putting the sources together: defaults, then `ratchet.toml`, then the environment, then flags.

A setting may have an older name in the environment; its own name is stronger.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.config.redaction import MASK, DatabaseUrl, mask_text
from ratchet.config.settings import Settings
from ratchet.config.sources import (
    DATABASE_URL,
    HOME_VARIABLE,
    Given,
    Home,
    Key,
    Source,
    dotted,
    find_home,
    from_aliases,
    from_environment,
    from_file,
    from_flags,
    ignored_aliases,
)

if TYPE_CHECKING:
    from ratchet.config.schema import KeyLeaf


_NEXT = 20


def ports_to_try(loaded: Loaded, key: str) -> tuple[int, ...]:
    """The port that somebody asked for and no other; otherwise the usual one, those after it, and any free one (0)."""
    section, name = key.split(".")
    port: int = getattr(getattr(loaded.settings, section), name)
    return (port,) if loaded.is_set(key) else (*range(port, port + _NEXT), 0)


FILE_NAME = "ratchet.toml"


@dataclass(frozen=True, slots=True)
class Origin:
    """The value of one key, fit to be shown, and where it came from."""

    key: str
    value: str | int | float | bool | None
    source: Source
    where: str


@dataclass(frozen=True, slots=True)
class Described:
    """A setting with all there is to know about it, fit to be shown. `table` is the part of the key before its name."""

    origin: Origin
    table: str
    description: str
    default: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in force, the home they belong to, and the story of each value."""

    settings: Settings
    home: Path
    _home: Home = field(repr=False)
    _given: Mapping[Key, Given] = field(repr=False)
    ignored: tuple[str, ...] = ()
    """Variables that are set and do nothing here, each with the reason."""

    def explain(self) -> list[Origin]:
        """Every key with its origin, secrets masked."""
        origins = [Origin("home", str(self.home), self._home.source, self._home.where)]
        return [*origins, *(self._origin(key) for _, key in _keys(self.settings))]

    def describe(self) -> list[Described]:
        """Every key with what it is for and what it would be if nobody had set it."""
        from ratchet.config.schema import default_of

        return [
            Described(
                self._origin(key),
                dotted(key[:-1]),
                leaf.field.description or "",
                None if leaf.is_secret else _shown(default_of(leaf, self.home)),
            )
            for leaf, key in _keys(self.settings)
        ]

    def is_set(self, key: str) -> bool:
        """Whether a file, a variable or a flag gives this key (`server.port`) its value."""
        return tuple(key.split(".")) in self._given

    def close_to_others(self) -> None:
        """Let no other user look into the home, whatever the umask was when it was made. One that belongs to another
        user or to all, as /tmp does, stays as it is."""
        close_to_others(self.home)

    def _origin(self, key: Key) -> Origin:
        given = self._given.get(key) or Given(None, "default", "built in")
        return Origin(dotted(key), _shown(_value(self.settings, key)), given.source, given.where)


# What is a secret by itself, also for those who may enter the home.
_SECRET_FILES = ("secret.key", "certificate.key", "token")


def close_to_others(home: Path) -> None:
    for path, mode in ((home, 0o700), *((home / name, 0o600) for name in _SECRET_FILES)):
        with contextlib.suppress(OSError):
            found = path.lstat()
            plain = not (stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX)
            # A directory around it may hand on its group, and then no sandbox could copy what lies below.
            if plain and found.st_uid == os.geteuid() and found.st_mode & (0o077 | stat.S_ISGID):
                path.chmod(mode)


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Loaded:
    """The settings for this directory and environment.

    `flags` has dotted keys (`server.port`) and `home`; a value of `None` counts as not given.
    Raises `ConfigError` for an unknown key, a value out of range, or a file that cannot be read.
    """
    flags = flags or {}
    env = os.environ if env is None else env
    cwd = (cwd or Path.cwd()).absolute()
    home = find_home(flags.get("home"), env.get(HOME_VARIABLE), cwd)
    named = from_environment(env)
    sources = (from_file(home.path / FILE_NAME), from_aliases(env, named, cwd), named, from_flags(flags))
    given = {key: value for source in sources for key, value in source.items()}
    if given.keys() - {DATABASE_URL}:
        # Most commands are called with nothing set, and what checks it is slow to import.
        from ratchet.config.schema import check_keys, checked_settings

        check_keys(sources)
        settings = checked_settings(given, _database(given, home.path))
    else:
        settings = Settings(_database(given, home.path))
    return Loaded(settings, home.path, home, given, ignored_aliases(env))


def _database(given: Mapping[Key, Given], home: Path) -> DatabaseUrl:
    """Where the ledger is. Raises `ConfigError` for an address that is none."""
    each = given.get(DATABASE_URL)
    if each is None:
        return DatabaseUrl(f"sqlite:///{home}/ledger.db")
    try:
        if not isinstance(each.value, str):
            raise ValueError("must be a text such as 'sqlite:///ledger.db'")
        return DatabaseUrl.parse(each.value).relative_to(home)
    except ValueError as problem:
        from ratchet.config.schema import explain_invalid

        raise explain_invalid([(DATABASE_URL, str(problem))], given) from None


def _keys(settings: Settings) -> Iterator[tuple[KeyLeaf, Key]]:
    """Every leaf with its key, those below a chosen name once for each name that exists."""
    from ratchet.config.schema import ANY, leaves

    for _, group in groupby(leaves(), key=lambda leaf: leaf.key[:-1]):
        together = list(group)
        for table in _tables(settings, together[0].key[:-1]):
            for leaf in together:
                last = _names(_value(settings, table)) if leaf.key[-1] == ANY else [leaf.key[-1]]
                yield from ((leaf, (*table, name)) for name in last)


def _tables(settings: Settings, pattern: Key) -> Iterator[Key]:
    """The tables that exist and fit `pattern`."""
    from ratchet.config.schema import ANY

    found: list[Key] = [()]
    for part in pattern:
        found = [
            (*key, name)
            for key in found
            for name in (_names(_value(settings, key)) if part == ANY else [part])
        ]
    yield from found


def _names(table: Any) -> list[str]:
    return list(table)


def _value(settings: Settings, key: Key) -> Any:
    value: Any = settings
    for part in key:
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def _shown(value: Any) -> str | int | float | bool | None:
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, DatabaseUrl):
        return str(value)
    if isinstance(value, str):
        return mask_text(str(value))
    if isinstance(value, tuple):
        return mask_text(shlex.join(value))
    return value  # type: ignore[no-any-return]
