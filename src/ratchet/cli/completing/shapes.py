"""What every command takes, remembered from the commands themselves.

Importing a command takes up to a second, since it brings everything that it needs to run. So what one takes is written
to the user's cache when a line of it is completed for the first time; from then on that takes a millisecond.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click
from click.shell_completion import shell_complete

import ratchet
from ratchet.cli.catalogue import Branch, Leaf
from ratchet.cli.command import Command, LazyGroup
from ratchet.cli.completing.values import Value


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
        return Value(self.path, shape["metavar"], number=shape["number"], engines=_built_in_engines)


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
