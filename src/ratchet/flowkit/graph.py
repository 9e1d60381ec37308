"""Which step waits for which, and in what order they can run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from .conditions import read_condition
from .errors import SpecError
from .references import (
    ALL_NAMES,
    NO_NAMES,
    OF_ITEMS,
    OF_ROUNDS,
    Own,
    Reference,
    find_inside,
    find_references,
    read_reference,
)
from .spec import WorkflowSpec, WorkflowStep

_MOST_CYCLES = 10
_LONGEST_SHOWN = 40


def own_names(step: WorkflowStep) -> Own:
    """What a step can refer to beside inputs and other steps."""
    if step.for_each is None:
        return NO_NAMES if step.repeat is None else OF_ROUNDS
    return OF_ITEMS if step.repeat is None else ALL_NAMES


def references_of(step: WorkflowStep, *, lenient: bool = False) -> tuple[Reference, ...]:
    """What a step refers to: in its inputs, its prompt, its list and its conditions.

    A condition that cannot be read raises `SpecError`, or refers to nothing if `lenient`.
    """
    found = dict.fromkeys(_taken(step))
    for condition in (step.when, step.repeat and step.repeat.until):
        if condition is None:
            continue
        try:
            found |= dict.fromkeys(read_condition(condition).references)
        except SpecError:
            if not lenient:
                raise
    return tuple(found)


def data_sources(step: WorkflowStep) -> frozenset[str]:
    """The steps whose values this one takes, without those that it only comes after."""
    return frozenset(one.name for one in _taken(step) if one.kind == "steps")


def dependencies(spec: WorkflowSpec) -> dict[str, frozenset[str]]:
    """For each step the steps that must have ended before it, as they are written: also one that does not exist."""
    return {step.step_id: needed(step.depends_on, references_of(step)) for step in spec.steps}


def needed(depends_on: Collection[str], references: Collection[Reference]) -> frozenset[str]:
    """The steps that a step waits for."""
    return frozenset(depends_on) | {one.name for one in references if one.kind == "steps"}


def followed(step: WorkflowStep, steps: Mapping[str, WorkflowStep]) -> str | None:
    """The step whose lines this one takes as they come: one that streams, and of which it needs nothing else."""
    reference = read_reference(step.for_each) if isinstance(step.for_each, str) else None
    if reference is None or reference.kind != "steps" or len(reference.path) != 2:
        return None
    source = steps.get(reference.name)
    if source is None or not source.stream or source.step_id in step.depends_on:
        return None
    others = [
        one for one in references_of(step, lenient=True) if one.kind == "steps" and one.name == source.step_id
    ]
    return source.step_id if others == [reference] else None


def waves(spec: WorkflowSpec) -> list[list[str]]:
    """The steps that could run at once, in turns; within a turn in the order of the file.

    Raises `SpecError` if a cycle or an unknown step keeps some from ever running.
    """
    edges = dependencies(spec)
    found = levels(edges)
    if sum(map(len, found)) == len(edges):
        return found
    unknown = [
        f"step {name} depends on {one}, which does not exist"
        for name, others in edges.items()
        for one in sorted(others - edges.keys())
    ]
    raise SpecError(unknown + [cycle_message(cycle) for cycle in cycles(edges)])


def levels(edges: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The steps by the length of the longest path to each; what can never run is left out."""
    waiting = {name: len(set(others)) for name, others in edges.items()}
    order = {name: number for number, name in enumerate(edges)}
    followers: dict[str, list[str]] = {}
    for name, others in edges.items():
        for other in set(others):
            followers.setdefault(other, []).append(name)
    found = []
    ready = [name for name, count in waiting.items() if count == 0]
    while ready:
        found.append(ready)
        following = []
        for name in ready:
            for follower in followers.get(name, ()):
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    following.append(follower)
        ready = sorted(following, key=order.__getitem__)
    return found


def cycles(edges: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """Circles of steps, at least one from each knot of them and not more than a few in all."""
    done: set[str] = set()
    given = 0
    for start in edges:
        path: list[str] = []
        place: dict[str, int] = {}
        turns: list[Iterator[str]] = []
        coming: str | None = start if start not in done else None
        while coming is not None or path:
            if coming is not None:
                place[coming] = len(path)
                path.append(coming)
                turns.append(iter(sorted(edges[coming])))
            coming = None
            for other in turns[-1]:
                if other in place:
                    yield [*path[place[other] :], other]
                    given += 1
                    if given == _MOST_CYCLES:
                        return
                elif other in edges and other not in done:
                    coming = other
                    break
            else:
                turns.pop()
                left = path.pop()
                del place[left]
                done.add(left)


def cycle_message(cycle: list[str]) -> str:
    """A cycle as a sentence."""
    shown = cycle
    if len(cycle) > _LONGEST_SHOWN:
        half = _LONGEST_SHOWN // 2
        shown = [*cycle[:half], f"… {len(cycle) - 2 * half} more …", *cycle[-half:]]
    return f"steps wait for each other in a circle: {' → '.join(shown)}"


def _taken(step: WorkflowStep) -> tuple[Reference, ...]:
    own = own_names(step)
    return (
        *find_references(step.input_mapping, own=own),
        *find_inside(step.prompt_template or "", own=own),
        *find_references(step.for_each),
        *(find_references(step.repeat.start, own=own - OF_ROUNDS) if step.repeat else ()),
    )
