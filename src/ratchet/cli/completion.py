"""What every command takes, remembered from the commands themselves.

Importing a command takes up to a second, since it brings everything that it needs to run. So what one takes is written
to the user's cache when a line of it is completed for the first time; from then on that takes a millisecond.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
from click.shell_completion import CompletionItem, shell_complete

import ratchet
from ratchet.cli.catalogue import Branch, Leaf
from ratchet.cli.command import Command, LazyGroup
from ratchet.cli.session import CliSession

_HOME = ".ratchet"


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """A home, the address of its ledger, and its ratchet.toml as it is."""

    home: Path
    database_url: str
    tables: Mapping[str, Any]

    @property
    def path(self) -> Path | None:
        """The file of a SQLite ledger; a relative path starts at the home."""
        scheme, _, rest = self.database_url.partition("://")
        return self.home / rest.removeprefix("/").partition("?")[0] if scheme == "sqlite" else None


def place_of(flags: Mapping[str, object]) -> LedgerPlace:
    """The place that the flags, the environment and the directory lead to, whether there is anything or not."""
    here = Path.cwd()
    home = (
        here / Path(str(flags.get("home") or os.environ.get("RATCHET_HOME") or _nearest(here))).expanduser()
    )
    tables = _tables(home / "ratchet.toml")
    url = flags.get("database_url") or os.environ.get("RATCHET_DATABASE_URL") or tables.get("database_url")
    return LedgerPlace(home, str(url or "sqlite:///ledger.db"), tables)


def _nearest(here: Path) -> Path:
    found = (directory / _HOME for directory in (here, *here.parents) if (directory / _HOME).is_dir())
    return next(found, here / _HOME)


def _tables(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, ValueError):
        return {}


_SECONDS = 0.1
_SECONDS_TO_CONNECT = 2

_NEWEST = "ORDER BY id DESC LIMIT 100"
_BY_NAME = "ORDER BY name LIMIT 1000"
_IDS_AND_NAMES = (
    "SELECT CAST(id AS TEXT), name || ' ' || status FROM ({0}) AS numbered "
    "UNION ALL SELECT name, status || ' ' || CAST(id AS TEXT) FROM ({0}) AS named"
)
_PROTOCOLS = (
    "SELECT runs.id AS id, protocols.name AS name, runs.status AS status FROM protocols "
    "JOIN runs ON runs.id = protocols.run_id ORDER BY runs.id DESC LIMIT 100"
)
_RESEARCH = f"SELECT id, name, status FROM runs WHERE kind = 'research' {_NEWEST}"
_PROJECTS = f"SELECT id, name, base_branch AS status FROM projects WHERE archived_at IS NULL {_BY_NAME}"

QUERIES: Mapping[str, str] = {
    "AGENT": f"SELECT name, description FROM agents WHERE status <> 'deleted' {_BY_NAME}",
    "APPROVAL": f"SELECT id, subject FROM approvals WHERE status = 'pending' {_NEWEST}",
    "JOB": f"SELECT id, kind || ' ' || status FROM jobs {_NEWEST}",
    "PROJECT": _IDS_AND_NAMES.format(_PROJECTS),
    "PROTOCOL": _IDS_AND_NAMES.format(_PROTOCOLS),
    "QUEUE": f"SELECT name, '' FROM job_queues {_BY_NAME}",
    "RESEARCH": _IDS_AND_NAMES.format(_RESEARCH),
    "RUN": f"SELECT id, kind || ' ' || name || ' ' || status FROM runs {_NEWEST}",
    "SCHEDULE": f"SELECT name, cron FROM schedules {_BY_NAME}",
    "STEP": (
        "SELECT steps.id, steps.name || ' ' || steps.status FROM protocol_steps "
        "JOIN steps ON steps.id = protocol_steps.step_id ORDER BY steps.id DESC LIMIT 100"
    ),
    "TOOL": f"SELECT name, source FROM tools WHERE NOT removed AND folder = '' {_BY_NAME}",
    "WORKFLOW": f"SELECT DISTINCT name, '' FROM workflows WHERE NOT removed {_BY_NAME}",
}
"""What is asked for each word: a name or a number, and what helps to tell it from others."""


def names_in(place: LedgerPlace, word: str) -> Mapping[str, str]:
    """The names that `word` may stand for, with what is said of each. None when the ledger cannot be read now."""
    with contextlib.suppress(Exception):
        return {str(name): str(about or "") for name, about in rows(place, QUERIES[word])}
    return {}


def rows(place: LedgerPlace, query: str) -> Sequence[tuple[object, object]]:
    """What the ledger answers. Raises whatever its driver raises."""
    return _from_server(place.database_url, query) if place.path is None else _from_file(place.path, query)


def _from_file(path: Path, query: str) -> Sequence[tuple[object, object]]:
    # Opened for writing, though nothing is written: only then are the files beside it removed again.
    with contextlib.closing(
        sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_SECONDS)
    ) as database:
        database.execute("PRAGMA query_only = ON")
        return database.execute(query).fetchall()


def _from_server(url: str, query: str) -> Sequence[tuple[object, object]]:
    import psycopg

    patience = f"-c statement_timeout={int(_SECONDS * 1000)} -c default_transaction_read_only=on"
    with psycopg.connect(url, connect_timeout=_SECONDS_TO_CONNECT, options=patience) as connection:
        return connection.execute(query).fetchall()


def engines(place: LedgerPlace, built_in: Iterable[str]) -> Mapping[str, str]:
    """Every engine that can be named, with what it is."""
    described = place.tables.get("engines", {}).get("command", {})
    return {
        **dict.fromkeys(_points("ratchet.engines"), "installed"),
        **dict.fromkeys(built_in, "built in"),
        **dict.fromkeys(described, "described in ratchet.toml"),
    }


def tasks() -> Mapping[str, str]:
    return dict.fromkeys(_points("ratchet.tasks"), "an installed task")


def _points(group: str) -> list[str]:
    # Slow to import, and most lines do without it.
    from importlib.metadata import entry_points

    return sorted(point.name for point in entry_points(group=group))


# A shell would take other characters for its own, and a name may come from anywhere.
_PLAIN = re.compile(r"[\w.@:/+-]+")
_MOST_HELP = 80

_FILES = {
    "BACKUP": "file",
    "FILE": "file",
    "PATH": "file",
    "DIR": "dir",
    "DIRECTORY": "dir",
    "WORKSPACE": "dir",
}
# The same word means something of its own to these commands.
_APART: Mapping[tuple[str, str], str | None] = {
    ("research", "RUN"): "RESEARCH",
    ("research", "TASK"): "INSTALLED TASK",
    ("agent", "TOOL"): None,
}


class KnownValue(click.ParamType[str]):
    """A value that is completed by what its metavar says."""

    name = "text"

    def __init__(
        self, path: str, metavar: str, *, number: bool, engines: Callable[[], Sequence[str]]
    ) -> None:
        self.group = path.partition(" ")[0]
        self.words = re.findall(r"[A-Za-z]+", metavar)
        self.number = number
        self.engines = engines

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        files = [_FILES[word] for word in self.words if word in _FILES]
        known = [] if files and "/" in incomplete else self._known(ctx, incomplete)
        # A shell completes either files or what it is given.
        return known or [CompletionItem(incomplete, type=kind) for kind in files[:1]]

    def _known(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        session = ctx.find_object(CliSession) or CliSession()
        place = place_of(session.flags)
        found = {name: about for word in self.words for name, about in self._named(word, place).items()}
        return [
            CompletionItem(name, help=_shown(about))
            for name, about in found.items()
            if name.startswith(incomplete)
            and _PLAIN.fullmatch(name)
            and (name.isdecimal() or not self.number)
        ]

    def _named(self, word: str, place: LedgerPlace) -> Mapping[str, str]:
        match _APART.get((self.group, word), word):
            case "ENGINE":
                return engines(place, self.engines())
            case "INSTALLED TASK":
                return tasks()
            case "QUEUE":
                configured = dict.fromkeys(["default", *place.tables.get("queues", {})], "")
                return {**configured, **names_in(place, "QUEUE")}
            case "all":
                return {"all": "all of them"}
            case str(kind) if kind in QUERIES:
                return names_in(place, kind)
            case _:
                return {}


def _shown(about: str) -> str | None:
    text = " ".join("".join(each if each.isprintable() else " " for each in about).split())
    return text[:_MOST_HELP] or None


def answer(root: click.Group, *, program: str, variable: str) -> int:
    """Print what may come next, as the shell wants it; the exit code."""
    try:
        return shell_complete(shaped(root), {}, program, variable, os.environ[variable])
    except Exception:  # noqa: BLE001  whatever is wrong, somebody is in the middle of typing and cannot be told
        return 1


Shape = Mapping[str, Any]


def shaped(root: click.Group) -> click.Group:
    """The program without what its commands do."""
    assert isinstance(root, LazyGroup)
    return _ShapedGroup(root.parts, name=root.name, params=root.params)


def shape_of(command: click.Command) -> Shape:
    """What is to be known of a command in order to complete a line of it."""
    return {
        "options": [_option(each) for each in command.params if isinstance(each, click.Option)],
        "arguments": [_argument(each) for each in command.params if isinstance(each, click.Argument)],
    }


def remembered(name: str, source: Path, make: Callable[[], Any]) -> Any:
    """What `make` made of `source`, from the cache as long as neither that file nor the program has changed."""
    stamp = [ratchet.__version__, source.stat().st_mtime_ns, str(source)]
    file = _cache() / f"{name.replace(' ', '-')}.json"
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(file.read_bytes())
        if kept["stamp"] == stamp:
            return kept["made"]
    made = make()
    # Where nothing can be written, it is made again the next time.
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({"stamp": stamp, "made": made}))
        new.replace(file)
    return made


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ratchet" / "completion"


class _ShapedGroup(LazyGroup):
    def __init__(self, parts: Mapping[str, Leaf | Branch], prefix: str = "", **kwargs: Any) -> None:
        super().__init__(parts, **kwargs)
        self.prefix = prefix

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        part = self.parts.get(cmd_name)
        path = f"{self.prefix}{cmd_name}"
        match part:
            case Branch():
                return _ShapedGroup(part.parts, f"{path} ", name=cmd_name, help=part.help)
            case Leaf():
                load = super().get_command
                return _ShapedCommand(path, part, lambda: cast("click.Command", load(ctx, cmd_name)))
            case _:
                return None


class _ShapedCommand(Command):
    """A command that finds out what it takes when a line of it is completed, and not when it is only listed."""

    def __init__(self, path: str, part: Leaf, load: Callable[[], click.Command]) -> None:
        super().__init__(path.rpartition(" ")[2], help=part.help)
        self.path = path
        self.source = part.source
        self.load = load

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if not self.params:
            shape = remembered(self.path, self.source, lambda: shape_of(self.load()))
            self.params = [*map(self._option, shape["options"]), *map(self._argument, shape["arguments"])]
        return super().get_params(ctx)

    def _option(self, shape: Shape) -> click.Option:
        names, about = shape["names"], shape["help"]
        if shape["flag"]:
            return click.Option(names, is_flag=True, help=about)
        return click.Option(names, multiple=shape["multiple"], type=self._type(shape), help=about)

    def _argument(self, shape: Shape) -> click.Argument:
        return click.Argument([shape["name"]], nargs=shape["nargs"], required=False, type=self._type(shape))

    def _type(self, shape: Shape) -> click.ParamType[Any]:
        if shape["choices"]:
            return click.Choice(shape["choices"])
        return KnownValue(self.path, shape["metavar"], number=shape["number"], engines=_built_in_engines)


def _built_in_engines() -> Sequence[str]:
    """The names of the engines that come with Ratchet."""
    source = Path(ratchet.__file__).with_name("engines") / "registry.py"
    return cast("Sequence[str]", remembered("engines", source, _read_engines))


def _read_engines() -> list[str]:
    from importlib.metadata import entry_points

    from ratchet.config import load_settings
    from ratchet.engines.registry import GROUP, engine_names

    installed = {point.name for point in entry_points(group=GROUP)}
    settings = load_settings(env={}, cwd=Path("/")).settings
    return [name for name in engine_names(settings) if name not in installed]


def _option(option: click.Option) -> Shape:
    return {
        # `--good/--bad` is one option with two names of its own.
        "names": [*option.opts, *option.secondary_opts],
        "help": option.help,
        "flag": option.is_flag,
        "multiple": option.multiple,
        **_value(option),
    }


def _argument(argument: click.Argument) -> Shape:
    return {"name": argument.name, "nargs": argument.nargs, **_value(argument)}


def _value(parameter: click.Parameter) -> Shape:
    kind = parameter.type
    return {
        "metavar": parameter.metavar or (parameter.name or "").upper(),
        "choices": list(kind.choices) if isinstance(kind, click.Choice) else None,
        "number": kind.name in ("n", "integer", "integer range", "float", "float range"),
    }
