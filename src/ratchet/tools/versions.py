"""By how much the version of a tool rises when its definition changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ratchet.kernel.semver import Bump
from ratchet.tools.definition import Tool


class Change(NamedTuple):
    """`reason` says why it is greater than the definition itself says."""

    bump: Bump
    reason: str | None = None


def change_between(old: Tool | None, new: Tool) -> Change:
    """What the definition says, but never less than what the change of its inputs means for those who call it."""
    declared = new.change_type or Bump.PATCH
    if old is None:
        return Change(declared)
    broken = _broken(old, new)
    if not broken or declared is Bump.MAJOR:
        return Change(declared)
    return Change(Bump.MAJOR, f"a major change, not a {declared} one: {'; '.join(broken)}")


def _broken(old: Tool, new: Tool) -> list[str]:
    """What makes calls fail that were right before."""
    before, after = _inputs(old), _inputs(new)
    was_required, is_required = _required(old), _required(new)
    broken = [f"the input {name} is gone" for name in sorted(was_required - after.keys()) if after]
    broken += [f"the input {name} is required now" for name in sorted(is_required - was_required)]
    broken += [
        f"the input {name} is of another type"
        for name in sorted(was_required & before.keys() & after.keys())
        if _type(before[name]) != _type(after[name])
    ]
    if old.type is not new.type:
        broken.append(f"it was of type {old.type} and is of type {new.type}")
    return broken + [
        f"it says so: {each}" for each in new.breaking_changes if each not in old.breaking_changes
    ]


def _inputs(tool: Tool) -> Mapping[str, Any]:
    found = (tool.input_schema or {}).get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(tool: Tool) -> frozenset[str]:
    found = (tool.input_schema or {}).get("required")
    return (
        frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()
    )


def _type(schema: Any) -> Any:
    return schema.get("type") if isinstance(schema, Mapping) else schema
