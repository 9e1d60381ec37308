"""The home, and the file, the environment and the flags, each as flat keys that know where they came from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ratchet.kernel import ConfigError


def most_like(key: Key, candidates: Iterable[Key]) -> Key:
    """The one of the candidates that is spelled most like `key`."""
    # Only an error needs it, and it is slow to import.
    from difflib import SequenceMatcher

    def likeness(candidate: Key) -> float:
        whole = SequenceMatcher(None, dotted(key), dotted(candidate)).ratio()
        last = SequenceMatcher(None, key[-1], candidate[-1]).ratio()
        return whole + last

    return max(candidates, key=likeness)


HOME_NAME = ".ratchet"

Source = Literal["default", "file", "environment", "flag"]


@dataclass(frozen=True, slots=True)
class Home:
    path: Path
    source: Source
    where: str


def find_home(flag: object, variable: str | None, cwd: Path) -> Home:
    """The flag, else `RATCHET_HOME`, else the nearest `.ratchet` at or above `cwd`, else `cwd/.ratchet`."""
    if flag:
        return Home(_directory(str(flag), cwd, "the flag home"), "flag", "command line")
    if variable:
        return Home(_directory(variable, cwd, "RATCHET_HOME"), "environment", "RATCHET_HOME")
    for directory in (cwd, *cwd.parents):
        if (directory / HOME_NAME).is_dir():
            return Home(directory / HOME_NAME, "default", f"the nearest {HOME_NAME} at or above {cwd}")
    return Home(_directory(HOME_NAME, cwd, "the home"), "default", f"no {HOME_NAME} at or above {cwd} yet")


def _directory(text: str, cwd: Path, origin: str) -> Path:
    path = cwd / Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise ConfigError(
            f"{origin} is {path}, which is not a directory", hint="name a directory, or remove the file"
        )
    return Path(path.absolute())


_TABLE = re.compile(r"\s*(\[\[?)([^\[\]]+)\]")
_LONG_TEXT = re.compile(r"\"{3}|'{3}")
_PAIR = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, key: Key) -> str:
    """`:12` for line 12, or nothing when the key is written in a way that is not recognised.

    The second table of an array `[[each]]` is the key `("each", "1")`.
    """
    table: Key = ()
    arrays: Counter[Key] = Counter()
    quotes: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        inside, quotes = quotes, _open_quotes(line, quotes)
        if inside is not None:
            continue
        if header := _TABLE.match(line):
            table = _parts(header[2])
            if header[1] == "[[":
                arrays[table] += 1
                table = (*table, str(arrays[table] - 1))
            if table == key:
                return f":{number}"
        elif pair := _PAIR.match(line):
            here = table + _parts(pair[1])
            if here == key[: len(here)]:
                return f":{number}"
    return ""


def _open_quotes(line: str, quotes: str | None) -> str | None:
    """The quotes of a text of many lines that is still open behind `line`."""
    for found in _LONG_TEXT.findall(line):
        if quotes is None:
            quotes = found
        elif found == quotes:
            quotes = None
    return quotes


def _parts(text: str) -> Key:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


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
