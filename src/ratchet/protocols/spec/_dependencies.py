"""Which step waits for which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.flowkit.graph import cycle_message, cycles
from ratchet.kernel import StepStatus
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.protocols.spec.step_spec import ProtocolSpec, StepSpec


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    id: str
    depends_on: tuple[str, ...]
    group: str | None
    cancelled: bool


def dependencies(given: ProtocolSpec | Sequence[ProtocolStep]) -> dict[str, frozenset[str]]:
    """For each step, by name, the steps that must be completed before it.

    Those it names itself; without any, all of the step or group just before it. A group stands where its first step
    stands. Who waits for a cancelled step waits for what that one waited for. A name that no step has stays in, so that
    what depends on it never becomes ready.
    """
    steps = _steps(given)
    edges = _edges(steps)
    cancelled = {step.name for step in steps if step.cancelled}
    return {name: _past(cancelled, others, edges) for name, others in edges.items()}


def dependency_problems(
    given: ProtocolSpec | Sequence[ProtocolStep], *, also: Iterable[str] = ()
) -> list[str]:
    """Dependencies on steps that do not exist, and steps that wait for each other. Names in `also` count as known."""
    edges = _edges(_steps(given))
    known = {*edges, *also}
    unknown = [
        f"step {name} depends on {other}, which does not exist"
        for name, others in edges.items()
        for other in sorted(others - known)
    ]
    return [*unknown, *map(cycle_message, cycles(edges))]


def names_of(steps: Iterable[StepSpec]) -> dict[str, str]:
    """What each name or id means: the name of a step."""
    return {label: step.called for step in steps for label in (step.id, step.called)}


def _edges(steps: Sequence[_Step]) -> dict[str, frozenset[str]]:
    names = {label: step.name for step in steps for label in (step.id, step.name)}
    edges: dict[str, frozenset[str]] = {}
    for before, block in _blocks(steps):
        for step in block:
            chosen = (names.get(label, label) for label in step.depends_on)
            edges[step.name] = frozenset(chosen) or before
    return {step.name: edges[step.name] for step in steps}


def _blocks(steps: Sequence[_Step]) -> Iterator[tuple[frozenset[str], list[_Step]]]:
    """Groups and single steps in their order, each with the names of the one before."""
    blocks: dict[object, list[_Step]] = {}
    for number, step in enumerate(steps):
        blocks.setdefault(number if step.group is None else step.group, []).append(step)
    before: frozenset[str] = frozenset()
    for block in blocks.values():
        yield before, block
        before = frozenset(step.name for step in block)


def _past(cancelled: set[str], names: Iterable[str], edges: dict[str, frozenset[str]]) -> frozenset[str]:
    """The names, with those that a cancelled one waited for in its place."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in cancelled:
            found.add(name)
        elif name not in seen:
            seen.add(name)
            waiting.extend(edges[name])
    return frozenset(found)


def _steps(given: ProtocolSpec | Sequence[ProtocolStep]) -> list[_Step]:
    if isinstance(given, ProtocolSpec):
        return [
            _Step(step.called, step.id, step.depends_on, step.parallel_group, cancelled=False)
            for step in given.steps
        ]
    return [_of_ledger(step) for step in sorted(given, key=lambda step: step.step_index)]


def _of_ledger(step: ProtocolStep) -> _Step:
    spec = step.spec if isinstance(step.spec, dict) else {}
    return _Step(
        name=step.name,
        id=_text(spec.get("id")) or step.name,
        depends_on=tuple(step.depends_on or ()),
        group=_text(spec.get("parallel_group")),
        cancelled=step.status is StepStatus.CANCELLED,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
