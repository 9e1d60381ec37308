"""What a script says, as values that remember where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.protocols.codemachine.errors import Place


@dataclass(frozen=True, slots=True)
class Known:
    """Something of the language or of a module that is understood, by its name: `path`, `path.join`, `resolveStep`."""

    name: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A module that is not read. Only what it may hand on by name can be used."""

    module: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function of workflow files with what it is given, such as `resolveStep('plan', {…})`. Nothing is called."""

    function: str
    arguments: tuple[Value, ...]


Data = None | bool | int | float | str | tuple["Value", ...] | Mapping[str, "Value"] | Call | Known | Foreign


@dataclass(frozen=True, slots=True)
class Value:
    """`size` counts everything inside, each time that it is there: a constant used twice counts twice."""

    data: Data
    place: Place
    size: int = 1


def plain(value: Value) -> Any:
    """The same without places, as JSON has it. Raises `WorkspaceInvalid` for what JSON does not have."""
    match value.data:
        case tuple() as items:
            return [plain(each) for each in items]
        case Mapping() as entries:
            return {name: plain(each) for name, each in entries.items()}
        case Call(function):
            raise value.place.error(f"{function}(…) has no meaning here")
        case Known(name) | Foreign(name):
            raise value.place.error(f"{name} is not a value")
        case simple:
            return simple
