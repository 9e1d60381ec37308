"""Call an agent at its stable address: its tools, the arguments of a call, and the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.agents.addresses import address
from ratchet.agents.contract import CALL_SECONDS, Role, ToolShape
from ratchet.agents.host import reached
from ratchet.agents.servers import Called, call_tool, list_tools
from ratchet.agents.versions import find_version
from ratchet.kernel import Misuse
from ratchet.ledger.agents import get_agent

if TYPE_CHECKING:
    from ratchet.config import Loaded
    from ratchet.runtime import Runtime


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def find_tool(tools: Sequence[ToolShape], name: str) -> ToolShape:
    """The tool of that name. Raises `Misuse` that lists those that there are."""
    for tool in tools:
        if tool.name == name:
            return tool
    raise Misuse(f"there is no tool {name!r}", hint=f"there are: {_listed(tool.name for tool in tools)}")


def parse_arguments(tool: ToolShape, pairs: Sequence[str]) -> Mapping[str, Any]:
    """The arguments in `KEY=VALUE` pairs: a value is JSON where the tool takes what that says, otherwise text.

    Raises `Misuse` for a pair without `=`, and for a key that the tool does not take.
    """
    return check_arguments(
        tool, read_pairs(pairs, _properties(tool.input_schema), or_else="--arguments with JSON")
    )


def read_pairs(pairs: Sequence[str], known: Mapping[str, Any], *, or_else: str) -> dict[str, Any]:
    """The values in `KEY=VALUE` pairs: JSON where the schema that is `known` of a key takes what that says, else text.

    Raises `Misuse` for a pair without `=`.
    """
    given = dict(_split(pair, or_else) for pair in pairs)
    return {key: _value(text, known.get(key)) for key, text in given.items()}


def check_arguments(tool: ToolShape, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments, if they are the tool's. What their values must be is for the tool to say.

    Raises `Misuse` for one that the tool does not take, and for one that it needs and is not given.
    """
    known = _properties(tool.input_schema)
    open_ended = tool.input_schema.get("additionalProperties", False) is not False
    unknown = [key for key in arguments if key not in known and not open_ended]
    missing = [key for key in _required(tool.input_schema) if key not in arguments]
    if unknown or missing:
        what = f"takes no {_listed(unknown)}" if unknown else f"needs {_listed(missing)}"
        raise Misuse(f"{tool.name} {what}", hint=f"it takes: {_listed(signature(tool))}")
    return arguments


def signature(tool: ToolShape) -> list[str]:
    """The arguments of a tool as `text: string`; one that may be left out as `limit?: integer`."""
    return described(tool.input_schema)


def described(schema: Mapping[str, Any]) -> list[str]:
    """The properties of a schema in the same way; those that have few values with all of these."""
    needed = _required(schema)
    return [
        f"{key}{'' if key in needed else '?'}: {'|'.join(_choices(each) or _type_names(each)) or 'any'}"
        for key, each in _properties(schema).items()
    ]


def _choices(schema: Any) -> list[str]:
    found = schema.get("enum") if isinstance(schema, Mapping) else None
    return [json.dumps(each) for each in found] if isinstance(found, list) else []


def _split(pair: str, or_else: str) -> tuple[str, str]:
    key, equals, text = pair.partition("=")
    if not key or not equals:
        raise Misuse(f"{pair[:80]!r} is no argument", hint=f"write KEY=VALUE, or {or_else}")
    return key, text


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    # The schema is the agent's own, and may be anything.
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(schema: Mapping[str, Any]) -> list[str]:
    found = schema.get("required")
    return [key for key in found if isinstance(key, str)] if isinstance(found, list) else []


def _value(text: str, schema: Any) -> Any:
    try:
        parsed = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    names = _type_names(schema)
    return parsed if not names or any(_is(parsed, name) for name in names) else text


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


def _is(value: Any, name: str) -> bool:
    # In Python a boolean is an integer too; in JSON it is not.
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES.get(name, ()))


def _type_names(schema: Any) -> list[str]:
    """The types that a schema names, in itself or in its alternatives."""
    if not isinstance(schema, Mapping):
        return []
    own = schema.get("type")
    alternatives = [each for key in ("anyOf", "oneOf") for each in _items(schema.get(key))]
    others = [each.get("type") for each in alternatives if isinstance(each, Mapping)]
    return [each for each in (*_items(own), own, *others) if isinstance(each, str)]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


@dataclass(frozen=True, slots=True)
class Callee:
    """Whom a call is for: a server of an agent, of its current version if none is named."""

    name: str
    role: Role = Role.RUNNER
    version: str | None = None


async def tools_of(runtime: Runtime, loaded: Loaded, callee: Callee) -> Sequence[ToolShape]:
    """The tools that a server lists; it is started if it does not run. Raises `NotFound` or `NoAnswer`."""
    commit = await asyncio.to_thread(_commit, runtime, callee)
    async with reached(runtime, loaded, callee.name) as host:
        return await list_tools(_url(host.url, callee, commit), _patience(loaded), token=host.token)


async def call(
    runtime: Runtime,
    loaded: Loaded,
    callee: Callee,
    tool: str,
    arguments: Callable[[ToolShape], Mapping[str, Any]],
    *,
    seconds: float = CALL_SECONDS,
) -> Called:
    """What a tool answers to the arguments that are made for it.

    Raises `NotFound`, `Misuse` for a tool that there is not or arguments that it does not take, and `NoAnswer`.
    """
    commit = await asyncio.to_thread(_commit, runtime, callee)
    async with reached(runtime, loaded, callee.name) as host:
        url = _url(host.url, callee, commit)
        found = find_tool(await list_tools(url, _patience(loaded), token=host.token), tool)
        return await call_tool(url, tool, arguments(found), seconds, token=host.token)


def _commit(runtime: Runtime, callee: Callee) -> str | None:
    """The commit to stay with; none where the address shall lead to whatever is current."""
    with runtime.ledger.read() as tx:
        found = find_version(tx, get_agent(tx, callee.name), callee.version or "current")
    return None if callee.version is None else found.commit


def _url(base: str, callee: Callee, commit: str | None) -> str:
    return address(base, callee.name, callee.role, commit)


def _patience(loaded: Loaded) -> float:
    """Long enough for a server that is started only now."""
    settings = loaded.settings.agents
    return settings.start_seconds + settings.call_seconds
