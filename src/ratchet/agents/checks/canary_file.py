"""canary.json: the calls that a new version must answer, and what their answers must be."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratchet.agents.checks.finding import NotPassed
from ratchet.agents.contract import CANARY, Role
from ratchet.agents.servers import Called
from ratchet.judges.reports import BadReport, strict_json

MAX_CALLS = 50
_KEYS = {"tool", "arguments", "expect", "server"}
_EXPECTED = ("contains", "equals")
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `expect` is empty, or has one of `contains` and `equals`."""

    tool: str
    arguments: Mapping[str, Any]
    expect: Mapping[str, Any]
    server: Role

    def told(self) -> str:
        return f"{self.server}: {self.tool}({shown(self.arguments)})"

    def unmet(self, answer: Called) -> str | None:
        """What is missing from an answer."""
        if "contains" in self.expect and self.expect["contains"] not in answer.text:
            return f"it does not contain {self.expect['contains']!r}"
        if "equals" in self.expect and not any(
            _same(self.expect["equals"], each) for each in _values(answer)
        ):
            return f"it does not equal {shown(self.expect['equals'])}"
        return None


def read_calls(content: bytes) -> tuple[Call, ...]:
    """The calls in canary.json. Raises `NotPassed`."""
    try:
        found = strict_json(content, CANARY)
    except BadReport as error:
        raise NotPassed(str(error)) from None
    if not isinstance(found, list):
        raise NotPassed(f"{CANARY} is {type(found).__name__}, not a list of calls")
    if len(found) > MAX_CALLS:
        raise NotPassed(f"{CANARY} has {len(found)} calls; leave at most {MAX_CALLS}")
    return tuple(_read_call(each, f"call {number} of {CANARY}") for number, each in enumerate(found, 1))


def shown(value: Any) -> str:
    """A JSON value as a reason shows it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _read_call(found: Any, label: str) -> Call:
    if not isinstance(found, dict):
        raise NotPassed(f"{label} is {type(found).__name__}, not an object")
    unknown = sorted(found.keys() - _KEYS)
    if unknown:
        raise NotPassed(f"{label} has {unknown[0]!r}; it may have {', '.join(sorted(_KEYS))}")
    tool, arguments = found.get("tool"), found.get("arguments")
    if not isinstance(tool, str) or not tool:
        raise NotPassed(f'{label} needs "tool", the name of a tool')
    if not isinstance(arguments, dict):
        raise NotPassed(f'{label} needs "arguments", an object')
    server = found.get("server", Role.RUNNER)
    if server not in tuple(Role):
        raise NotPassed(f'{label} has "server": {shown(server)}; it may be "runner" or "tuner"')
    return Call(tool, arguments, _read_expect(found.get("expect", {}), label), Role(server))


def _read_expect(found: Any, label: str) -> Mapping[str, Any]:
    if not isinstance(found, dict) or not found.keys() <= set(_EXPECTED) or len(found) > 1:
        raise NotPassed(f'{label} may expect {{"contains": text}} or {{"equals": value}}, not {shown(found)}')
    if not isinstance(found.get("contains", ""), str):
        raise NotPassed(f'{label} expects "contains": {shown(found["contains"])}, which is not a text')
    return found


def _values(answer: Called) -> list[Any]:
    """An answer in the forms that an author may mean: a server wraps what is no object, and text may be JSON."""
    found = [answer.text]
    if answer.structured is not None:
        found.append(answer.structured)
        if isinstance(answer.structured, dict) and answer.structured.keys() == {"result"}:
            found.append(answer.structured["result"])
    else:
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(answer.text))
    return found


def _same(wanted: Any, value: Any) -> bool:
    """Whether two JSON values are equal; `true` is no number."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(_same(wanted[key], value[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(map(_same, wanted, value))
    return bool(wanted == value)
