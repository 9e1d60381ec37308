"""The home, and the file, the environment and the flags, each as flat keys that know where they came from."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """The flag, else `RATCHET_HOME`, else the nearest `.ratchet` at or above `cwd`, else a new one.

    A new one lies at the top of the git repository around `cwd`, or in `cwd` if there is none.
    """
    if flag:
        return Home(_directory(str(flag), cwd, "the flag home"), "flag", "command line")
    if variable:
        return Home(_directory(variable, cwd, "RATCHET_HOME"), "environment", "RATCHET_HOME")
    for directory in (cwd, *cwd.parents):
        if (directory / HOME_NAME).is_dir():
            return Home(directory / HOME_NAME, "default", f"the nearest {HOME_NAME} at or above {cwd}")
    top = next((each for each in (cwd, *cwd.parents) if (each / ".git").exists()), cwd)
    return Home(_directory(HOME_NAME, top, "the home"), "default", f"no {HOME_NAME} at or above {cwd} yet")


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
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="fix its permissions") from error
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


ALIAS_PREFIX = "TASKSGODZILLA_"

Reader = Callable[[str, Path], object]
"""What a text means for the setting, given the working directory. Raises `ValueError` with what it must be."""


@dataclass(frozen=True, slots=True)
class Alias:
    key: Key
    read: Reader


def _same(text: str, _: Path) -> str:
    return text


def _lower(text: str, _: Path) -> str:
    return text.strip().lower()


def _boolean(text: str, _: Path) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("must be 1, true, yes or on, or 0, false, no or off")


def _json_format(text: str, cwd: Path) -> str:
    return "json" if _boolean(text, cwd) else "text"


def _level(text: str, _: Path) -> str:
    level = text.strip().lower()
    return {"warn": "warning", "critical": "error", "fatal": "error"}.get(level, level)


def _minutes(text: str, _: Path) -> int | None:
    """Whole minutes, rounded up; 0 is never."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError("must be a number of seconds, 0 or more")
    return math.ceil(seconds / 60) or None


def _path_alias(text: str, cwd: Path) -> str:
    """A relative path starts at the working directory here, not at the home."""
    return str(cwd / Path(text).expanduser())


def _database(text: str, cwd: Path) -> str:
    return "sqlite:///" + _path_alias(text, cwd).replace("%", "%25").replace("?", "%3F")


def _at(key: str, read: Reader = _same) -> Alias:
    return Alias(tuple(key.split(".")), read)


# Of two for one key the later is stronger.
ALIASES: Mapping[str, Alias] = {
    "TASKSGODZILLA_DB_PATH": _at("database_url", _database),
    "TASKSGODZILLA_DB_URL": _at("database_url"),
    "TASKSGODZILLA_API_HOST": _at("server.host"),
    "TASKSGODZILLA_API_PORT": _at("server.port"),
    "TASKSGODZILLA_API_TOKEN": _at("server.token"),
    "TASKSGODZILLA_WEBHOOK_TOKEN": _at("protocols.webhook_secret"),
    "TASKSGODZILLA_LOG_LEVEL": _at("log.level", _level),
    "TASKSGODZILLA_LOG_JSON": _at("log.format", _json_format),
    "TASKSGODZILLA_MAX_TOKENS_PER_STEP": _at("budgets.attempt.tokens"),
    "TASKSGODZILLA_MAX_TOKENS_PER_PROTOCOL": _at("budgets.run.tokens"),
    "TASKSGODZILLA_TOKEN_BUDGET_MODE": _at("budgets.policy", _lower),
    "TASKSGODZILLA_AUTO_QA_ON_CI": _at("protocols.qa_on_ci", _boolean),
    "TASKSGODZILLA_SPEC_AUDIT_INTERVAL_SECONDS": _at("protocols.audit_minutes", _minutes),
    "TASKSGODZILLA_PROJECTS_ROOT": _at("projects.root", _path_alias),
    "TASKSGODZILLA_AUTO_CLONE": _at("projects.auto_clone", _boolean),
    "TASKSGODZILLA_GH_SSH": _at("projects.github_ssh", _boolean),
    "TASKSGODZILLA_GIT_USER": _at("projects.git_user"),
    "TASKSGODZILLA_GIT_EMAIL": _at("projects.git_email"),
    "TASKSGODZILLA_REQUIRE_ONBOARDING_CLARIFICATIONS": _at("projects.require_clarifications", _boolean),
    "TASKSGODZILLA_DISCOVERY_TIMEOUT": _at("projects.discovery_seconds"),
    "PROTOCOL_PLANNING_MODEL": _at("protocols.models.planning"),
    "PROTOCOL_DECOMPOSE_MODEL": _at("protocols.models.decompose"),
    "PROTOCOL_EXEC_MODEL": _at("protocols.models.exec"),
    "PROTOCOL_QA_MODEL": _at("protocols.models.qa"),
    "PROTOCOL_DISCOVERY_MODEL": _at("protocols.models.discovery"),
}

_FOR_REPORTS = "only scripts/ci/report.sh and clients of the API use it"
IGNORED: Mapping[str, str] = {
    "TASKSGODZILLA_REDIS_URL": "jobs wait in the database, and no Redis is needed",
    "TASKSGODZILLA_DB_POOL_SIZE": "connections are counted by what runs at once",
    "TASKSGODZILLA_ENV": "there are no settings by the name of an environment",
    "TASKSGODZILLA_AUTO_QA_AFTER_EXEC": "the review of a step always follows its execution",
    "PROTOCOL_SKIP_SIMPLE_DECOMPOSE": "only steps that need it are ever taken apart; see `protocols.decompose`",
    "TASKSGODZILLA_API_BASE": _FOR_REPORTS,
    "TASKSGODZILLA_PROJECT_TOKEN": _FOR_REPORTS,
    "TASKSGODZILLA_CI_PROVIDER": _FOR_REPORTS,
    "TASKSGODZILLA_PROTOCOL_RUN_ID": _FOR_REPORTS,
    "TASKSGODZILLA_BRANCH": _FOR_REPORTS,
    "TASKSGODZILLA_TARGET_URL": _FOR_REPORTS,
}


def from_aliases(env: Mapping[str, str], stronger: Mapping[Key, object], cwd: Path) -> dict[Key, Given]:
    """The settings that other names give, but for those that `stronger` has. An empty variable counts as not set.

    Raises `ConfigError` for a `TASKSGODZILLA_*` variable that nobody knows, and for a value that has no meaning.
    """
    given: dict[Key, Given] = {}
    for name, alias in ALIASES.items():
        if env.get(name) and alias.key not in stronger:
            given[alias.key] = Given(_read(name, alias, env[name], cwd), "environment", name)
    _refuse_unknown(env)
    return given


def ignored_aliases(env: Mapping[str, str]) -> tuple[str, ...]:
    """What is set and does nothing here, each with the reason."""
    return tuple(f"{name} is ignored: {reason}" for name, reason in IGNORED.items() if env.get(name))


def _read(name: str, alias: Alias, text: str, cwd: Path) -> object:
    try:
        return alias.read(text, cwd)
    except ValueError as problem:
        raise ConfigError(f"{name} is {text[:100]!r}; it {problem}") from None


def _refuse_unknown(env: Mapping[str, str]) -> None:
    """Variables that begin with PROTOCOL_ are left alone: other programs have such names too."""
    unknown = [name for name in env if name.startswith(ALIAS_PREFIX) and env[name]]
    unknown = [name for name in unknown if name not in ALIASES and name not in IGNORED]
    if unknown:
        from difflib import get_close_matches

        [first, *_] = sorted(unknown)
        near = get_close_matches(first, [*ALIASES, *IGNORED], n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"{first} is unknown; the nearest is {near}",
            hint="rename it, use a RATCHET_* variable, or remove it",
        )
