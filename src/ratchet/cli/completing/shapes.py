"""What every command takes, from a table that is made of the commands themselves by `ratchet dev reference`.

Importing a command takes a second, since it brings everything that it needs to run. The table takes a few milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from ratchet.cli.catalogue import Branch, Leaf
from ratchet.cli.command import Command
from ratchet.cli.completing.values import Value
from ratchet.cli.group import LazyGroup

FILE = Path(__file__).with_name("shapes.json")

Shape = Mapping[str, Any]


class Shapes(NamedTuple):
    """The shapes of commands by their names, such as `runs show`, and the engines that are built in."""

    commands: Mapping[str, Shape]
    engines: Sequence[str]


def shape_of(command: click.Command) -> Shape:
    """What is to be known of a command in order to complete a line of it."""
    return {
        "options": [_option(each) for each in command.params if isinstance(each, click.Option)],
        "arguments": [_argument(each) for each in command.params if isinstance(each, click.Argument)],
    }


def shaped(root: click.Group) -> click.Group:
    """The program without what its commands do."""
    assert isinstance(root, LazyGroup)
    return _ShapedGroup(
        root.parts, Shapes(**json.loads(FILE.read_bytes())), name=root.name, params=root.params
    )


class _ShapedGroup(LazyGroup):
    def __init__(
        self, parts: Mapping[str, Leaf | Branch], shapes: Shapes, prefix: str = "", **kwargs: Any
    ) -> None:
        super().__init__(parts, **kwargs)
        self.shapes = shapes
        self.prefix = prefix

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        part = self.parts.get(cmd_name)
        path = f"{self.prefix}{cmd_name}"
        match part:
            case Branch():
                return _ShapedGroup(part.parts, self.shapes, f"{path} ", name=cmd_name, help=part.help)
            case Leaf():
                return self._command(path, part)
            case _:
                return None

    def _command(self, path: str, part: Leaf) -> click.Command:
        shape = self.shapes.commands.get(path, {})
        options = [self._option(path, each) for each in shape.get("options", ())]
        arguments = [
            click.Argument([f"a{number}"], nargs=each["nargs"], required=False, type=self._type(path, each))
            for number, each in enumerate(shape.get("arguments", ()))
        ]
        return Command(path.rpartition(" ")[2], params=[*options, *arguments], help=part.help)

    def _option(self, path: str, shape: Shape) -> click.Option:
        names, about = shape["names"], shape["help"]
        if shape["flag"]:
            return click.Option(names, is_flag=True, help=about)
        return click.Option(names, multiple=shape["multiple"], type=self._type(path, shape), help=about)

    def _type(self, path: str, shape: Shape) -> click.ParamType[Any]:
        if shape["choices"]:
            return click.Choice(shape["choices"])
        return Value(path, shape["metavar"], number=shape["number"], engines=self.shapes.engines)


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
    return {"nargs": argument.nargs, **_value(argument)}


def _value(parameter: click.Parameter) -> Shape:
    kind = parameter.type
    return {
        "metavar": parameter.metavar or (parameter.name or "").upper(),
        "choices": list(kind.choices) if isinstance(kind, click.Choice) else None,
        "number": kind.name in ("n", "integer", "integer range", "float", "float range"),
    }
