"""A variant of a task: what it says is laid over what the task says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.kernel import Misuse

_PROGRAMS = ("trial", "evaluator")
_AS_FUNCTION = ("function", "file", "modules", "prepare")
_AS_COMMAND = ("command",)


def varied(found: Mapping[str, Any], variant: str | None, path: Path) -> dict[str, Any]:
    """The tables of a variant, or of the task itself. Tables are merged, lists are replaced, and so is the roster.

    A variant that runs something as a command where the task calls a function, or the other way round, replaces how it
    is run and keeps its limits.
    """
    plain = {name: value for name, value in found.items() if name != "variants"}
    if variant is None:
        return plain
    known = found.get("variants", {})
    if variant not in known:
        names = f"it has {', '.join(sorted(known))}" if known else "it has none"
        raise Misuse(f"{path} has no variant {variant!r}; {names}", hint="leave the variant out")
    says = known[variant]
    if "agents" in says and "specialist" in says:
        raise Misuse(
            f"the variant {variant!r} of {path} has both agents and specialists",
            hint="give either a number of generic agents or the specialists by name",
        )
    for name in _PROGRAMS:
        if name in plain and name in says:
            plain[name] = _without_other_way(plain[name], says[name])
    return _merged(plain, {name: value for name, value in says.items() if name != "agents"})


def generic_agents(number: int) -> list[dict[str, Any]]:
    """So many specialists that differ in nothing but their names."""
    width = max(2, len(str(number)))
    return [{"name": f"agent-{each:0{width}}"} for each in range(1, number + 1)]


def _without_other_way(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    gone = _AS_FUNCTION if "command" in over else _AS_COMMAND if "function" in over else ()
    return {key: value for key, value in table.items() if key not in gone}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            result[name] = _merged(under, value)
        else:
            result[name] = value
    return result
