"""The file, the environment and the flags, each as flat keys that know where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.config.home import Source
from ratchet.kernel import ConfigError

Key = tuple[str, ...]

DATABASE_URL: Key = ("database_url",)
PREFIX = "RATCHET_"
DELIMITER = "__"
HOME_VARIABLE = "RATCHET_HOME"
# Those of the test-suite, and those of the CI scripts that are given to projects.
_RESERVED = ("RATCHET_TEST_", "RATCHET_CI_")
_OF_REPORTS = ("RATCHET_URL", "RATCHET_WEBHOOK_SECRET")


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody set, and the place to look for it."""

    value: Any = field(repr=False)
    source: Source
    where: str


def from_file(path: Path) -> dict[Key, Given]:
    """The keys of a `ratchet.toml`; none when there is no such file."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="mend its permissions") from error
    import tomllib

    from ratchet.config.toml_lines import line_of

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint=_mending(error)) from None
    return {key: Given(value, "file", f"{path}{line_of(text, key)}") for key, value in flatten(tables)}


def _mending(error: ValueError) -> str | None:
    """Nearly every table has its place in the first file, so one that is pasted in comes twice."""
    if "twice" not in str(error):
        return None
    return "the file has that table already: put the keys under the one that is there, or take it away"


def from_environment(env: Mapping[str, str]) -> dict[Key, Given]:
    """The `RATCHET_*` variables, `RATCHET_SERVER__PORT` being `server.port`.

    An empty variable counts as not set; the word `none` unsets a value that the file set.
    """
    return {
        _key(name): Given(None if text.lower() == "none" else text, "environment", name)
        for name, text in env.items()
        if text and _is_setting(name)
    }


def from_flags(flags: Mapping[str, object]) -> dict[Key, Given]:
    """Dotted keys from the command line. `None` means that the flag was not used."""
    return {
        tuple(name.split(".")): Given(value, "flag", "command line")
        for name, value in flags.items()
        if value is not None and name != "home"
    }


def dotted(key: Key) -> str:
    return ".".join(key)


def variable(key: Key) -> str:
    """The environment variable that sets `key`."""
    return PREFIX + DELIMITER.join(key).upper()


def flatten(tables: Mapping[str, Any], prefix: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Nested tables as flat keys. An empty table stays, since naming a queue is enough to create it."""
    for name, value in tables.items():
        key = (*prefix, name)
        if isinstance(value, Mapping) and value:
            yield from flatten(value, key)
        else:
            yield key, value


def nest(flat: Mapping[Key, Any]) -> dict[str, Any]:
    """The opposite of `flatten`."""
    tables: dict[str, Any] = {}
    for key, value in flat.items():
        table = tables
        for part in key[:-1]:
            table = table.setdefault(part, {})
        if value == {}:
            table.setdefault(key[-1], {})
        else:
            table[key[-1]] = value
    return tables


def _is_setting(name: str) -> bool:
    ours = name.startswith(PREFIX) and not name.startswith(_RESERVED)
    return ours and name not in (HOME_VARIABLE, *_OF_REPORTS)


def _key(name: str) -> Key:
    return tuple(name.removeprefix(PREFIX).lower().split(DELIMITER))
