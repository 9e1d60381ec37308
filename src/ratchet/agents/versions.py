"""How versions are named, tagged and numbered: references, tags, and what changed for the callers of the tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from ratchet.agents.contract import ToolShape
from ratchet.kernel import Conflict, Misuse, NotFound
from ratchet.kernel.semver import Bump, is_semver
from ratchet.ledger import Transaction
from ratchet.ledger.agents import (
    AgentRow,
    AgentVersion,
    first_numbered,
    get_version,
    list_versions,
    versions_numbered,
    versions_starting,
)

# Words for people; a caller that did without them still does.
_REMARKS = ("title", "description", "default", "examples", "deprecated", "$comment", "$schema")
# Under these stand schemas by their names, and under those one schema, each compared for itself.
_NAMED = ("properties", "$defs", "definitions")
_SINGLE = ("items", "additionalProperties")
# These have names for keys as well, and their values are no schemas but plain JSON.
_OTHER_NAMED = ("patternProperties", "dependentSchemas", "dependentRequired")
_PLAIN = ("enum", "const")
# Lists in which the order means nothing.
_SETS = ("enum", "type", "required")


class _Change(IntEnum):
    NONE = 0
    WIDENED = 1
    BROKEN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolChanges:
    """Names of tools. Those who call a `removed` or `changed` one have to change as well.

    A `widened` one takes or answers more than before. `least` is the smallest bump that is honest about it all.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()

    @property
    def least(self) -> Bump:
        if self.removed or self.changed:
            return Bump.MAJOR
        return Bump.MINOR if self.added or self.widened else Bump.PATCH


def compare_tools(old: Sequence[ToolShape], new: Sequence[ToolShape]) -> AgentToolChanges:
    """What became of the tools of a version in the next one."""
    before, after = {tool.name: tool for tool in old}, {tool.name: tool for tool in new}
    changes = {name: _change(before[name], after[name]) for name in sorted(before.keys() & after.keys())}
    return AgentToolChanges(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(name for name, change in changes.items() if change is _Change.BROKEN),
        widened=tuple(name for name, change in changes.items() if change is _Change.WIDENED),
    )


def changes_since(old: AgentVersion, tools: Any, offers: Any) -> AgentToolChanges:
    """What became of all that callers of a recorded version could see, in one that lists these.

    Of a version that was recorded before its resources, prompts and Tuner were, only the tools are compared.
    """
    if old.offers is None:
        return compare_tools(shapes_of(old.tools), shapes_of(tools))
    return compare_tools(shapes_of([*old.tools, *old.offers]), shapes_of([*tools, *(offers or ())]))


def shapes_of(stored: Any) -> tuple[ToolShape, ...]:
    """The tools of a recorded version."""
    return tuple(
        ToolShape(tool["name"], tool["description"], tool["input_schema"], tool["output_schema"])
        for tool in stored
    )


def to_json(tools: Sequence[ToolShape]) -> list[dict[str, Any]]:
    """The tools as a version is recorded with them."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.input_schema,
            "output_schema": tool.output_schema,
        }
        for tool in tools
    ]


def _change(old: ToolShape, new: ToolShape) -> _Change:
    try:
        return max(
            _compared(old.input_schema, new.input_schema, answer=False),
            _compared_answers(old.output_schema, new.output_schema),
        )
    except RecursionError:  # what such a schema says is unknown, so no caller may rely on it
        return _Change.BROKEN


def _compared_answers(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> _Change:
    if old is None:
        return _Change.NONE if new is None else _Change.WIDENED
    return _Change.BROKEN if new is None else _compared(old, new, answer=True)


def _compared(old: Any, new: Any, *, answer: bool) -> _Change:
    """How a schema changed. More properties only widen it, unless a caller would have to give them."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return _kept_or_not(_meaning(old) == _meaning(new))
    apart = (*_REMARKS, *_NAMED, *_SINGLE, "required")
    rests = [{key: part for key, part in schema.items() if key not in apart} for schema in (old, new)]
    return max(
        _kept_or_not(_meaning(rests[0]) == _meaning(rests[1])),
        _compared_required(_texts(old.get("required")), _texts(new.get("required")), answer=answer),
        *(_compared_named(key, old.get(key, {}), new.get(key, {}), answer=answer) for key in _NAMED),
        # Where no schema stands, anything goes.
        *(_compared(old.get(key, True), new.get(key, True), answer=answer) for key in _SINGLE),
    )


def _compared_required(old: set[str], new: set[str], *, answer: bool) -> _Change:
    """A caller has to give all that is required, and may rely on all that is required of an answer."""
    return _kept_or_not(old <= new if answer else old == new)


def _compared_named(key: str, old: Any, new: Any, *, answer: bool) -> _Change:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return _kept_or_not(_meaning(old) == _meaning(new))
    changes = [_compared(old[name], new[name], answer=answer) for name in old.keys() & new.keys()]
    # A definition that comes or goes means nothing by itself: what refers to it is compared as well.
    if key == "properties" and new.keys() - old.keys():
        changes.append(_Change.WIDENED)
    if key == "properties" and old.keys() - new.keys():
        changes.append(_Change.BROKEN)
    return max(changes, default=_Change.NONE)


def _kept_or_not(kept: bool) -> _Change:
    return _Change.NONE if kept else _Change.BROKEN


def _meaning(value: Any, under: str = "") -> Any:
    """A part of a schema without the words for people, in a form that is equal where the meaning is."""
    plain = under in _PLAIN
    if isinstance(value, Mapping):
        names = plain or under in (*_NAMED, *_OTHER_NAMED)
        return {
            key: _meaning(part, "const" if plain else "" if names else key)
            for key, part in value.items()
            if names or key not in _REMARKS
        }
    if isinstance(value, list):
        parts = [_meaning(part, "const" if plain else "") for part in value]
        return sorted(parts, key=repr) if under in _SETS else parts
    # Or true would be equal to 1.
    return ("bool", value) if isinstance(value, bool) else value


def _texts(names: Any) -> set[str]:
    return {repr(name) for name in names} if isinstance(names, list) else {repr(names)} - {"None"}


_DIGITS = 12
_TAG = re.compile(r"v([0-9.]+)(?:-([0-9a-f]{4,64}))?", re.ASCII)


class Tag(NamedTuple):
    """`v0.1.0`, or `v0.1.0-4f2a91c07be2`."""

    number: str
    digits: str | None

    def __str__(self) -> str:
        return f"v{self.number}" if self.digits is None else f"v{self.number}-{self.digits}"


def read_tag(text: str) -> Tag | None:
    """The tag that a text is; `None` if it is none."""
    found = _TAG.fullmatch(text)
    return None if found is None or not is_semver(found[1]) else Tag(found[1], found[2])


def tag_for(tx: Transaction, agent_id: int, number: str, commit: str) -> Tag:
    """The tag of a version that is, or is about to be, recorded."""
    first = first_numbered(tx, agent_id, [number]).get(number)
    return _tag(number, commit, first)


def tags_of(tx: Transaction, agent_id: int, versions: Collection[AgentVersion]) -> dict[str, str]:
    """The tags of these versions of one agent, by their commits."""
    firsts = first_numbered(tx, agent_id, {version.version for version in versions})
    return {
        version.commit: str(_tag(version.version, version.commit, firsts.get(version.version)))
        for version in versions
    }


def tagged(tx: Transaction, agent_id: int, tag: Tag) -> list[AgentVersion]:
    """The versions that a tag names: one, or none; several only if it has too few digits."""
    if tag.digits is None:
        return list(first_numbered(tx, agent_id, [tag.number]).values())
    found = versions_starting(tx, agent_id, tag.digits)
    return [version for version in found if version.version == tag.number]


def _tag(number: str, commit: str, first: AgentVersion | None) -> Tag:
    is_first = first is None or first.commit == commit
    return Tag(number, None if is_first else commit[:_DIGITS])


CURRENT = ("latest", "current")
_LEAST_DIGITS = 4
_HEX = re.compile(r"[0-9a-f]{1,64}", re.ASCII)
_FEW = 10


def find_version(tx: Transaction, agent: AgentRow, text: str) -> AgentVersion:
    """The version that `text` names: `latest` or `current`, a commit or its first digits, a number, or a tag.

    Raises `NotFound`, `Conflict` if several are meant, and `Misuse` for what can name none. Each says which there are.
    """
    wanted = text.strip().lower()
    if wanted in CURRENT:
        return _current(tx, agent)
    if is_semver(wanted):
        return _only(tx, agent, text, versions_numbered(tx, agent.id, wanted, limit=_FEW))
    if (tag := read_tag(wanted)) is not None:
        return _only(tx, agent, text, tagged(tx, agent.id, tag))
    if _HEX.fullmatch(wanted) is None:
        raise Misuse(
            f"{text[:80]!r} does not name a version",
            hint="use latest, the first digits of a commit, a number such as 0.1.0, or a tag such as v0.1.0",
        )
    if len(wanted) < _LEAST_DIGITS:
        raise Misuse(f"{text!r} is too short for a commit", hint=f"give at least {_LEAST_DIGITS} digits")
    return _only(tx, agent, text, versions_starting(tx, agent.id, wanted, limit=_FEW))


def _current(tx: Transaction, agent: AgentRow) -> AgentVersion:
    if agent.current is None:
        raise Conflict(
            f"the agent {agent.name} has no version yet: it is {agent.status}",
            hint=f"see its progress with `ratchet agent show {agent.name}`",
        )
    return get_version(tx, agent.id, agent.current)


def _only(tx: Transaction, agent: AgentRow, text: str, found: Sequence[AgentVersion]) -> AgentVersion:
    if len(found) == 1:
        return found[0]
    if found:
        raise Conflict(
            f"{text[:80]!r} names {_many(found)} versions of {agent.name}",
            hint=f"name one by its commit: {_listed(found)}",
        )
    missing = NotFound("version", f"{text[:80]} of {agent.name}")
    missing.hint = f"there are {_listed(list_versions(tx, agent.id, limit=_FEW)) or 'none yet'}"
    raise missing


def _many(found: Sequence[AgentVersion]) -> str:
    return f"{_FEW} or more" if len(found) == _FEW else str(len(found))


def _listed(versions: Sequence[AgentVersion]) -> str:
    return ", ".join(f"{version.commit[:12]} ({version.version})" for version in versions)
