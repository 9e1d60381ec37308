"""Specs from JSON: reading, validation and the record in the ledger. All problems are reported at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from ratchet.kernel import Misuse, iso, shortened
from ratchet.ledger import Transaction, to_json
from ratchet.ledger.protocols import Protocol, change_protocol, get_protocol
from ratchet.protocols.policies import policy_problems
from ratchet.protocols.spec.step_spec import (
    Exists,
    ProtocolSpec,
    StepSpec,
    candidates,
    dependency_problems,
    find_path,
    spec_hash,
    unsafe_path,
    write_protocol_spec,
)
from ratchet.workspaces.trees import unwanted_name

S = TypeVar("S")


@cache
def _reader(kind: type[S]) -> TypeAdapter[S]:
    return TypeAdapter(kind)


def spec_schema() -> dict[str, Any]:
    """What a spec may be, as JSON Schema."""
    schema = _reader(ProtocolSpec).json_schema()
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}


_SHOWN = 5


class SpecInvalid(Misuse):
    """A spec that cannot be carried out. `problems` has everything that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        super().__init__(
            f"the spec is invalid: {'; '.join(problems[:_SHOWN])}{more}",
            hint="`ratchet spec schema` prints what a spec looks like, `ratchet spec validate` every problem",
        )
        self.problems = problems


_MOST_PROBLEMS = 100
_LONGEST = 200


class _Fault(NamedTuple):
    """What the schema refuses, and which step it is in, if in one."""

    step: int | None
    message: str


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
    try:
        text = to_json(data)
        read = _reader(ProtocolSpec).validate_json(text)
        return _checked(replace(read, steps=_sorted(read.steps)), [], root=root)
    except Misuse as refused:
        return None, [str(refused)[:_LONGEST]]
    except ValidationError as error:
        found = error.errors(include_url=False)
    if found[0]["type"] == "json_invalid":
        # The text was written by us: what the parser refuses of it is how deep it is nested, or half a character.
        return None, [f"the spec cannot be read: {found[0]['msg']}"]
    faults = [_fault(each["loc"], each) for each in found]
    problems = [fault.message for fault in faults]
    raw = data.get("steps") if isinstance(data, Mapping) else None
    if not isinstance(raw, list):
        return None, problems
    broken = {fault.step for fault in faults}
    good = [_reader(StepSpec).validate_json(to_json(step)) for at, step in enumerate(raw) if at not in broken]
    names = {label for index in broken if index is not None for label in _labels(raw[index])}
    return _checked(ProtocolSpec(_sorted(good)), problems, root=root, also=names)


def _checked(
    spec: ProtocolSpec, problems: list[str], *, root: str, also: Iterable[str] = ()
) -> tuple[ProtocolSpec, list[str]]:
    return spec, _bounded([*problems, *check_spec(spec, root=root, also=also)])


def _fault(where: Sequence[int | str], error: Mapping[str, Any]) -> _Fault:
    step = where[1] if len(where) > 1 and where[0] == "steps" and isinstance(where[1], int) else None
    match error["type"]:
        case "missing":
            *where, name = where
            message = f"{name!r} is a required property"
        case "unexpected_keyword_argument":
            *where, name = where
            message = f"{name!r} is unknown"
        case "dataclass_type":
            message = f"{error['input']!r} is not of type 'object'"
        case _:
            message = f"{repr(error['input'])[:_LONGEST_SHOWN]}: {error['msg']}"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return _Fault(step, f"${path[:_LONGEST]}: {message[:_LONGEST]}")


def _sorted(steps: Iterable[StepSpec]) -> tuple[StepSpec, ...]:
    """By `order`; a step that says none stays behind the one before it."""
    place = float("-inf")
    placed: list[tuple[float, StepSpec]] = []
    for step in steps:
        place = place if step.order is None else step.order
        placed.append((place, step))
    return tuple(step for _, step in sorted(placed, key=lambda pair: pair[0]))


def _labels(step: Any) -> Iterator[str]:
    if isinstance(step, Mapping):
        yield from (step[name] for name in ("id", "name") if isinstance(step.get(name), str))


def _bounded(problems: list[str]) -> list[str]:
    if len(problems) <= _MOST_PROBLEMS:
        return problems
    return [*problems[:_MOST_PROBLEMS], f"and {len(problems) - _MOST_PROBLEMS} more problems"]


# What every protocol has in its folder besides the files of its steps.
CONTRACT = ("plan.md", "context.md", "log.md")
_LONGEST_SHOWN = 100


def check_spec(spec: ProtocolSpec, *, root: str = "", also: Iterable[str] = ()) -> list[str]:
    """One sentence for each problem that shows without looking at files.

    `root` is the folder of the protocol in the repository, if it is known. `also` has names of steps that could not be
    read, so that depending on them is no second problem.
    """
    return [
        *_name_problems(spec),
        *dependency_problems(spec, also=also),
        *_path_problems(spec),
        *_overwritten(spec, root),
        *_policy_problems(spec),
    ]


def check_paths(spec: ProtocolSpec, exists: Exists, *, root: str = "") -> list[str]:
    """One sentence for each prompt that is not there. `exists` tells whether a path of the repository is a file."""
    return [
        f"step {step.called}: {what} {_shown(path)} does not exist"
        for step in spec.steps
        for what, path in _prompts(step)
        if unsafe_path(path) is None and find_path(path, root, exists) is None
    ]


def _name_problems(spec: ProtocolSpec) -> Iterator[str]:
    # A name and an id of one step may be the same; of two steps they may not, as either can be depended on.
    meant = Counter(label for step in spec.steps for label in {step.id, step.called})
    yield from (f"{_shown(label)} names {count} steps" for label, count in meant.items() if count > 1)
    for label in meant:
        reason = "has a slash in it" if "/" in label else unwanted_name(label)
        if reason is not None:
            yield f"step {_shown(label)} {reason}, so no file can be called like it"


def _path_problems(spec: ProtocolSpec) -> Iterator[str]:
    for step in spec.steps:
        for what, path in (*_prompts(step), *_output_problems(step)):
            reason = unsafe_path(path)
            if reason is not None:
                yield f"step {step.called}: {what} {_shown(path)} {reason}"


def _overwritten(spec: ProtocolSpec, root: str) -> Iterator[str]:
    """Outputs that would take the place of what the work is done by."""
    read = {
        place for step in spec.steps for _, path in _prompts(step) for place in candidates(path, root)
    } | {place for name in CONTRACT for place in candidates(name, root)[:1]}
    for step in spec.steps:
        for what, path in _output_problems(step):
            if not read.isdisjoint(candidates(path, root)):
                yield f"step {step.called}: {what} {_shown(path)} would overwrite an input of the protocol"


def _policy_problems(spec: ProtocolSpec) -> Iterator[str]:
    for index, step in enumerate(spec.steps):
        labels: frozenset[int | str] = frozenset({index, step.id, step.called})
        yield from (
            f"step {step.called}: {problem}" for problem in policy_problems(step.policies, labels=labels)
        )


def _prompts(step: StepSpec) -> Iterator[tuple[str, str]]:
    yield "prompt_ref", step.prompt_ref
    if step.qa.prompt is not None:
        yield "qa.prompt", step.qa.prompt


def _output_problems(step: StepSpec) -> Iterator[tuple[str, str]]:
    for name, path in step.outputs.paths.items():
        yield f"output {_shown(name)}", path


def _shown(text: str) -> str:
    return repr(shortened(text, _LONGEST_SHOWN))


VALID, INVALID, MISSING = "valid", "invalid", "missing"
_NO_SPEC = "the protocol has no spec"


def spec_problems(spec: ProtocolSpec | Any, *, root: str = "", exists: Exists | None = None) -> list[str]:
    """One sentence for each problem of a spec, as a value or as JSON. With `exists` its files are looked for too."""
    data = write_protocol_spec(spec) if isinstance(spec, ProtocolSpec) else spec
    read, problems = read_leniently(data, root=root)
    if read is not None and exists is not None:
        problems = [*problems, *check_paths(read, exists, root=root)]
    return problems


def record_spec(
    tx: Transaction, run_id: int, spec: ProtocolSpec | Mapping[str, Any], *, exists: Exists | None = None
) -> list[str]:
    """Keep a protocol's spec, also one that is invalid, with what is wrong with it. What that is.

    Neither steps nor statuses change. Raises `NotFound`.
    """
    protocol = get_protocol(tx, run_id)
    data = write_protocol_spec(spec) if isinstance(spec, ProtocolSpec) else dict(spec)
    problems = spec_problems(data, root=protocol.root, exists=exists)
    number = spec_hash(data)
    change_protocol(tx, run_id, spec=data, spec_hash=number)
    _judge(tx, protocol, INVALID if problems else VALID, problems, {"protocol_spec": data})
    tx.event(
        "spec_validation_error" if problems else "spec_validated",
        run_id=run_id,
        project_id=protocol.project_id,
        message="; ".join(problems[:3]) if problems else f"{len(data['steps'])} steps",
        data={"spec_hash": number, "errors": problems},
    )
    return problems


def judge_spec(tx: Transaction, protocol: Protocol, problems: Sequence[str]) -> None:
    """Write down what an audit found of the spec that a protocol has, or that it has none."""
    if protocol.spec is None:
        _judge(tx, protocol, MISSING, [_NO_SPEC, *problems], {})
    else:
        _judge(tx, protocol, INVALID if problems else VALID, problems, {})


def _judge(
    tx: Transaction, protocol: Protocol, status: str, problems: Sequence[str], more: Mapping[str, Any]
) -> None:
    before = protocol.template_config if isinstance(protocol.template_config, dict) else {}
    judged = {"status": status, "errors": list(problems), "validated_at": iso(tx.now)}
    change_protocol(
        tx,
        protocol.run_id,
        spec_status=status,
        spec_errors=list(problems),
        spec_validated_at=tx.now,
        template_config={**before, **more, "spec_meta": judged},
    )
