"""Specs from JSON. Everything that is wrong is told at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ratchet.kernel import Misuse
from ratchet.ledger import to_json
from ratchet.protocols.spec.errors import SpecInvalid
from ratchet.protocols.spec.paths import plain_path
from ratchet.protocols.spec.schema import SCHEMA
from ratchet.protocols.spec.step_spec import Outputs, ProtocolSpec, Qa, QaPolicy, StepSpec
from ratchet.protocols.spec.validation import check_spec

_MOST_PROBLEMS = 100
_LONGEST = 200


class _Fault(NamedTuple):
    """What the schema refuses, and which step it is in, if in one."""

    step: int | None
    told: str


def read_protocol_spec(data: Any, *, root: str = "") -> ProtocolSpec:
    """The spec that JSON says. Raises `SpecInvalid` with everything that is wrong with it.

    `root` is the folder of the protocol in the repository, if it is known.
    """
    spec, problems = read_leniently(data, root=root)
    if problems or spec is None:
        raise SpecInvalid(problems)
    return spec


def read_leniently(data: Any, *, root: str = "") -> tuple[ProtocolSpec | None, list[str]]:
    """What of a spec can be read, if anything, and one sentence for each problem."""
    faults = list(_faults(data))
    problems = [fault.told for fault in faults]
    raw = data.get("steps") if isinstance(data, Mapping) else None
    if not isinstance(raw, list):
        return None, problems
    broken = {fault.step for fault in faults}
    good = {index: _step(step) for index, step in enumerate(raw) if index not in broken}
    names = {label for index in broken if index is not None for label in _labels(raw[index])}
    spec = ProtocolSpec(
        steps=tuple(_sorted(good.values())),
        version=data.get("version") if isinstance(data.get("version"), str | int) else None,
        **{name: _table(data.get(name)) for name in ("placeholders", "template", "metadata")},
    )
    problems += check_spec(spec, root=root, also=names)
    return spec, _bounded(problems)


def _faults(data: Any) -> Iterator[_Fault]:
    # Slow to import, and not needed where no spec is read.
    from jsonschema import Draft7Validator

    try:
        to_json(data)
    except Misuse as refused:
        yield _Fault(None, str(refused)[:_LONGEST])
        return
    try:
        errors = sorted(Draft7Validator(SCHEMA).iter_errors(data), key=lambda each: list(map(str, each.path)))
    except RecursionError:
        yield _Fault(None, "the spec is nested too deeply")
        return
    for error in errors:
        where = list(error.absolute_path)
        step = where[1] if len(where) > 1 and where[0] == "steps" and isinstance(where[1], int) else None
        yield _Fault(step, f"{error.json_path[:_LONGEST]}: {error.message[:_LONGEST]}")


def _sorted(steps: Iterable[StepSpec]) -> list[StepSpec]:
    """By `order`; a step that says none stays behind the one before it."""
    place = float("-inf")
    placed: list[tuple[float, StepSpec]] = []
    for step in steps:
        place = place if step.order is None else step.order
        placed.append((place, step))
    return [step for _, step in sorted(placed, key=lambda pair: pair[0])]


def _step(data: Mapping[str, Any]) -> StepSpec:
    return StepSpec(
        id=data["id"],
        engine_id=data["engine_id"],
        prompt_ref=plain_path(data["prompt_ref"]),
        qa=_qa(data["qa"]),
        name=data.get("name"),
        description=data.get("description"),
        model=data.get("model"),
        inputs=_table(data.get("inputs")),
        outputs=_outputs(_table(data.get("outputs"))),
        step_type=data.get("step_type"),
        policies=tuple(data.get("policies") or ()),
        order=data.get("order"),
        metadata=_table(data.get("metadata")),
        depends_on=tuple(data.get("depends_on") or ()),
        parallel_group=data.get("parallel_group"),
    )


def _qa(data: Mapping[str, Any]) -> Qa:
    prompt = data.get("prompt")
    return Qa(
        policy=None if data["policy"] is None else QaPolicy(data["policy"]),
        prompt=None if prompt is None else plain_path(prompt),
        model=data.get("model"),
        engine_id=data.get("engine_id"),
        inputs=_table(data.get("inputs")),
    )


def _outputs(data: Mapping[str, Any]) -> Outputs:
    protocol = data.get("protocol")
    return Outputs(
        protocol=None if protocol is None else plain_path(protocol),
        aux={name: plain_path(path) for name, path in _table(data.get("aux")).items()},
    )


def _labels(step: Any) -> Iterator[str]:
    if isinstance(step, Mapping):
        yield from (step[name] for name in ("id", "name") if isinstance(step.get(name), str))


def _table(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _bounded(problems: list[str]) -> list[str]:
    if len(problems) <= _MOST_PROBLEMS:
        return problems
    return [*problems[:_MOST_PROBLEMS], f"and {len(problems) - _MOST_PROBLEMS} more problems"]
