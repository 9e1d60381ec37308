"""Policies as people and CodeMachine write them: one or a list, in camelCase or snake_case, nested or flat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ratchet.kernel import Misuse
from ratchet.protocols.policies.policy import Behavior, Policy

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WHOLE = re.compile(r"-?[0-9]{1,9}", re.ASCII)
# Other names under which CodeMachine has the same.
_ALIASES = {
    "module": "module_id",
    "type": "behavior",
    "skip": "skip_steps",
    "loop_skip": "skip_steps",
    "loop_steps": "step_back",
    "loop_max_iterations": "max_iterations",
}
_REASON_KEYS = ("on", "reason", "event", "when", "name")
_DEEPEST = 5


def read_policies(raw: Any) -> list[Policy]:
    """The policies that can be understood, in their order. Others have no effect: nothing is looped by guessing."""
    return [policy for policy, _ in _read_all(raw) if policy is not None]


def policy_problems(raw: Any, *, labels: frozenset[int | str] = frozenset()) -> list[str]:
    """One sentence for each policy that cannot be understood, or that leaves out its own step.

    `labels` are the index, name and id of the step that has the policies.
    """
    problems = []
    for policy, problem in _read_all(raw):
        if policy is None:
            problems.append(problem)
        elif policy.behavior is Behavior.LOOP and policy.skip_steps & labels:
            problems.append(
                f"loop {policy.module_id} skips its own step, which would then never be done again"
            )
        elif policy.behavior is Behavior.TRIGGER and policy.target is None:
            problems.append(f"trigger {policy.module_id} names no agent")
    return problems


def read_reasons(value: Any, depth: int = 0) -> frozenset[str]:
    """The reasons in a condition: a text, a table that has one, or a list of either. Case does not count."""
    if value is None or depth > _DEEPEST:
        return frozenset()
    if isinstance(value, str):
        return frozenset({value.strip().lower()} - {""})
    if isinstance(value, Mapping):
        value = [value[key] for key in _REASON_KEYS if key in value]
    if isinstance(value, Sequence):
        return frozenset().union(*(read_reasons(each, depth + 1) for each in value))
    return frozenset()


def _read_all(raw: Any) -> Iterator[tuple[Policy | None, str]]:
    given = [raw] if isinstance(raw, Mapping) else raw if isinstance(raw, list | tuple) else []
    for number, each in enumerate(given, start=1):
        try:
            yield _read(each, number), ""
        except Misuse as error:
            yield None, f"policy {number}: {error}"


def _read(raw: Any, number: int) -> Policy:
    if not isinstance(raw, Mapping):
        raise Misuse(f"it is no object but {type(raw).__name__}")
    said = _flat(raw)
    back = _whole(said, "step_back")
    return Policy(
        module_id=_text(said, "module_id") or _text(said, "id") or _text(said, "name") or f"policy-{number}",
        behavior=_behavior(said),
        action=_text(said, "action"),
        max_iterations=_whole(said, "max_iterations"),
        step_back=back if back is not None and back > 0 else 1,
        skip_steps=_skipped(said.get("skip_steps")),
        trigger_agent_id=_text(said, "trigger_agent_id"),
        target_agent_id=_text(said, "target_agent_id"),
        reasons=_reasons(said),
    )


def _flat(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The keys in one spelling, with those of a nested behavior among them."""
    said = _plain_keys(raw)
    inner = said.get("behavior")
    return {**said, "behavior": None, **_plain_keys(inner)} if isinstance(inner, Mapping) else said


def _plain_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    said = {_HUMP.sub("_", str(key)).replace("-", "_").lower(): value for key, value in raw.items()}
    others = {name: said[other] for other, name in _ALIASES.items() if other in said}
    return {**others, **said}


def _behavior(said: Mapping[str, Any]) -> Behavior:
    value = said.get("behavior")
    try:
        return Behavior(str(value).strip().lower())
    except ValueError:
        raise Misuse(f"its behavior is {_shown(value)}, not loop or trigger") from None


def _reasons(said: Mapping[str, Any]) -> frozenset[str]:
    """A condition that says nothing that can be understood must not mean `always`."""
    given = [said[key] for key in ("condition", "conditions") if said.get(key) not in (None, "", [], {})]
    reasons = frozenset().union(*map(read_reasons, given))
    if given and not reasons:
        raise Misuse(f"its condition {_shown(given[0])} names no reason")
    return reasons


def _whole(said: Mapping[str, Any], key: str) -> int | None:
    value = said.get(key)
    if value is None:
        return None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misuse(f"its {key} is {_shown(value)}, which is no whole number")
    return value


def _skipped(value: Any) -> frozenset[int | str]:
    given = [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
    skipped: set[int | str] = set()
    for each in given:
        if isinstance(each, str) and each.strip() and not _WHOLE.fullmatch(each.strip()):
            skipped.add(each.strip())
        else:
            number = _whole({"skip_steps": each}, "skip_steps")
            if number is not None:
                skipped.add(number)
    return frozenset(skipped)


def _text(said: Mapping[str, Any], key: str) -> str | None:
    value = said.get(key)
    return value.strip() if isinstance(value, str) and value.strip() else None


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"
