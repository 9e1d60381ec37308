"""Specs from JSON: the schema, reading, validation and the record in the ledger. All problems are reported at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ratchet.kernel import Misuse, iso
from ratchet.ledger import Transaction, to_json
from ratchet.ledger.protocols import Protocol, change_protocol, get_protocol
from ratchet.protocols.policies import policy_problems
from ratchet.protocols.spec.step_spec import (
    Exists,
    ProtocolSpec,
    Qa,
    QaPolicy,
    StepOutputs,
    StepSpec,
    candidates,
    dependency_problems,
    find_path,
    plain_path,
    spec_hash,
    unsafe_path,
    write_protocol_spec,
)
from ratchet.workspaces.trees import unwanted_name

MOST_STEPS = 1000
_LONGEST_PATH = 1024
_LONGEST_NAME = 200

_TABLE = {"type": "object"}
_NAME = {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME}
_PATH = {"type": "string", "minLength": 1, "maxLength": _LONGEST_PATH}
_MAYBE = {"type": ["string", "null"]}

_OUTPUTS = {
    "type": "object",
    "description": "Where the text of the session is written to. Never the path of a prompt, a plan or a step file.",
    "properties": {
        "protocol": {**_PATH, **_MAYBE},
        "aux": {"type": "object", "additionalProperties": _PATH},
    },
    "additionalProperties": False,
}

_QA = {
    "type": "object",
    "description": "How the step is judged; null is full.",
    "properties": {
        "policy": {"enum": ["skip", "light", "full", None]},
        "prompt": {**_PATH, **_MAYBE},
        "model": _MAYBE,
        "engine_id": _MAYBE,
        "inputs": _TABLE,
    },
    "required": ["policy"],
    "additionalProperties": False,
}

_STEP = {
    "type": "object",
    "properties": {
        "id": _NAME,
        "name": {**_NAME, **_MAYBE, "description": "What the step is called, if not by its id."},
        "description": _MAYBE,
        "engine_id": {**_MAYBE, "description": "The engine that carries it out; null is the usual one."},
        "model": _MAYBE,
        "prompt_ref": {
            **_PATH,
            "description": "The file with the task: in the folder of the protocol, else in the repository.",
        },
        "inputs": {**_TABLE, "description": "What else the prompt says."},
        "outputs": _OUTPUTS,
        "step_type": {"enum": ["setup", "work", "qa", None]},
        "policies": {"type": "array", "items": _TABLE, "description": "Loops and triggers."},
        "qa": _QA,
        "order": {
            "type": ["integer", "null"],
            "description": "Steps are sorted by it. One without stays behind the step before it in the list.",
        },
        "metadata": _TABLE,
        "depends_on": {
            "type": "array",
            "items": _NAME,
            "description": "Names or ids of the steps that must be completed before; none means those just before it.",
        },
        "parallel_group": {
            **_NAME,
            **_MAYBE,
            "description": "Steps of one group may run at once. The group stands where its first step stands.",
        },
    },
    "required": ["id", "engine_id", "prompt_ref", "qa"],
    "additionalProperties": False,
}

SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "ProtocolSpec",
    "description": "The steps of a protocol, who carries them out and how they are judged.",
    "type": "object",
    "properties": {
        "version": {"type": ["string", "integer", "null"]},
        "steps": {
            "type": "array",
            "items": {"$ref": "#/definitions/StepSpec"},
            "minItems": 1,
            "maxItems": MOST_STEPS,
        },
        "placeholders": _TABLE,
        "template": _TABLE,
        "metadata": _TABLE,
    },
    "required": ["steps"],
    "additionalProperties": False,
    "definitions": {"StepSpec": _STEP},
}


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
    faults = list(_faults(data))
    problems = [fault.message for fault in faults]
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


def _outputs(data: Mapping[str, Any]) -> StepOutputs:
    protocol = data.get("protocol")
    return StepOutputs(
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
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")


VALID, INVALID, MISSING = "valid", "invalid", "missing"
_NO_SPEC = "the protocol has no spec"


def root_of(protocol: Protocol) -> str:
    """The folder of a protocol in its repository."""
    return protocol.root


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
    problems = spec_problems(data, root=root_of(protocol), exists=exists)
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
