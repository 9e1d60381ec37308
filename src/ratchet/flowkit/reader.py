"""Reads a workflow from JSON, in the form that `writer` makes and in older ones.

In older files a step's `input` or `input_parameters` is its `input_mapping`, `output_key` its `output_name`,
`input_from_step` a step to wait for; `input_parameters` of a workflow are its `inputs`. In such inputs `{name}` means a
workflow input or the output of a step. The old keys stay next to the new ones and are read only where those are
absent. Steps of such files were run one after the other, and still are: what they do to the world may need it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from enum import StrEnum
from typing import Any, TypeVar

from .errors import SpecError, trimmed
from .graph import needed, references_of
from .jsontext import load_json, require_json
from .spec import (
    AtLimit,
    OperationType,
    Repeat,
    StepType,
    ToolDefinition,
    WorkflowInput,
    WorkflowOutput,
    WorkflowSpec,
    WorkflowStep,
)

OLD_KEYS = frozenset({"input", "input_parameters", "output_key", "input_from_step", "task_for_node"})
_ORDERED = frozenset({"input", "output_key"})
"""By these keys a step of a file is known whose steps ran in the order of the file."""
_PLACE = re.compile(r"(?<![\w{$])\{([A-Za-z_][\w-]*)((?:\.[\w-]+)*)\}")
Choice = TypeVar("Choice", bound=StrEnum)
Part = TypeVar("Part")
Nested = Callable[[Mapping[str, Any], str, str], WorkflowSpec | None]
"""Reads a workflow inside a step: the object, where it stands, and the name that it has if it names none itself."""
DEEPEST = 10
"""How many workflows may lie inside one another."""


class OldNames:
    """What `{name}` means in the inputs of an old step."""

    def __init__(self, inputs: Mapping[str, Any], steps: list[Any]) -> None:
        self._inputs = frozenset(inputs)
        self._outputs = {
            step["output_key"]: step.get("step_id")
            for step in steps
            if isinstance(step, Mapping) and isinstance(step.get("output_key"), str)
        }

    def translate(self, value: Any) -> Any:
        """The same inputs with `${…}` in place of each name that is known; all else stays as it is."""
        if isinstance(value, str):
            return _PLACE.sub(self._put, value)
        if isinstance(value, Mapping):
            return {key: self.translate(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.translate(inner) for inner in value]
        return value

    def _put(self, match: re.Match[str]) -> str:
        name, below = match[1], match[2]
        if name in self._inputs:
            return f"${{inputs.{name}{below}}}"
        if self._outputs.get(name) is not None:
            return f"${{steps.{self._outputs[name]}.{name}{below}}}"
        return match[0]


class SpecFields:
    """Reads the keys of an object. What is wrong is added to `problems`; a key that is null counts as absent."""

    def __init__(self, data: Mapping[str, Any], where: str, problems: list[str]) -> None:
        self._data = data
        self._where = where
        self._taken: set[str] = set()
        self.problems = problems

    def has(self, key: str) -> bool:
        return self._data.get(key) is not None

    def keep(self, key: str) -> Any:
        """The value of a key that stays where it is, among the rest."""
        return self._data.get(key)

    def rest(self) -> dict[str, Any]:
        """What was not taken."""
        return {key: value for key, value in self._data.items() if key not in self._taken}

    def any(self, key: str) -> Any:
        self._taken.add(key)
        return self._data.get(key)

    def text(self, key: str) -> str | None:
        value = self.any(key)
        if value is None or isinstance(value, str):
            return value
        self.wrong(key, "a text", value)
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; one text alone is a list of one."""
        value = self.any(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return tuple(value)
        self.wrong(key, "a list of texts", value)
        return ()

    def flag(self, key: str, default: bool) -> bool:
        value = self.any(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(key, "true or false", value)
        return default

    def maybe(self, key: str, _default: None) -> bool | None:
        """A flag that need not be set either way."""
        return self.flag(key, False) if self.has(key) else self.any(key)

    def number(self, key: str, default: float) -> float:
        value = self.any(key)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
        self.wrong(key, "a number", value)
        return default

    def whole(self, key: str, default: int) -> int:
        value = self.any(key)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.wrong(key, "a whole number", value)
        return default

    def choice(self, key: str, choices: type[Choice]) -> Choice | None:
        value = self.any(key)
        if value is None:
            return None
        try:
            return choices(value)
        except ValueError:
            self.wrong(key, f"one of {', '.join(choices)}", value)
            return None

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.any(key)
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return dict(value)
        self.wrong(key, "an object", value)
        return {}

    def fill(self, kind: Callable[..., Part], **own: Any) -> Part:
        """A `kind` with what is its `own`, what the keys called like its other fields say, and the rest as `extra`."""
        others = [each for each in dataclass_fields(kind) if each.name not in {"extra", *own}]  # type: ignore[arg-type]
        read = {each.name: _READERS[str(each.type)](self, each.name, each.default) for each in others}
        return kind(**own, **read, extra=self.rest())

    def wrong(self, key: str, wanted: str, value: object) -> None:
        self.problems.append(f"{self._where}{key} must be {wanted}, not {shown(value)}")

    def missing(self, key: str) -> None:
        self.problems.append(f"{self._where}{key} is missing")


_READERS: Mapping[str, Callable[[SpecFields, str, Any], Any]] = {
    "str": lambda fields, key, usual: fields.text(key) or usual,
    "str | None": lambda fields, key, _usual: fields.text(key),
    "tuple[str, ...]": lambda fields, key, _usual: fields.texts(key),
    "bool": SpecFields.flag,
    "bool | None": SpecFields.maybe,
    "float": SpecFields.number,
    "int": SpecFields.whole,
}
"""How a field of a workflow is read, by its type."""


def shown(value: object) -> str:
    """A value as it is named in a sentence: short, and what it is if it is long."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value) if isinstance(value, str) else str(value)[:100]
    return text if len(text) <= 100 else f"{text[:97]}…"


def read_step(
    data: Any, number: int, old_names: OldNames, where: str, problems: list[str], nested: Nested
) -> WorkflowStep | None:
    """The step that a JSON object says; `None` if it has no id."""
    if not isinstance(data, Mapping):
        problems.append(f"{where}step {number} must be an object, not {shown(data)}")
        return None
    here = f"{where}step {data.get('step_id') or number}: "
    fields = SpecFields(data, here, problems)
    step_id = fields.text("step_id")
    if step_id is None:
        if not fields.has("step_id"):
            fields.missing("step_id")
        return None
    inner = fields.mapping("workflow_spec")
    return fields.fill(
        WorkflowStep,
        step_id=step_id,
        step_type=_step_type(fields),
        tool_name=fields.text("tool"),
        operation_type=fields.choice("operation_type", OperationType),
        workflow_spec=nested(inner, here, step_id) if inner else None,
        input_mapping=_input_mapping(fields, old_names),
        output_name=_output_name(fields),
        parallel_group=_group(fields),
        depends_on=_depends_on(fields),
        for_each=fields.any("for_each"),
        repeat=_repeat(fields, here),
        answer_schema=fields.mapping("answer_schema") if fields.has("answer_schema") else None,
    )


def _repeat(fields: SpecFields, here: str) -> Repeat | None:
    if not fields.has("repeat"):
        fields.any("repeat")
        return None
    inner = SpecFields(fields.mapping("repeat"), f"{here}repeat: ", fields.problems)
    until, limit = inner.text("until"), inner.whole("limit", 0)
    for key in ("until", "limit"):
        if not inner.has(key):
            inner.missing(key)
    found = Repeat(
        until or "",
        limit,
        inner.any("start"),
        inner.number("pause_seconds", 0.0),
        inner.choice("at_limit", AtLimit) or AtLimit.FAIL,
    )
    fields.problems += [
        f"{here}repeat: there is no key {key!r}; it has until, limit, start, pause_seconds and at_limit"
        for key in inner.rest()
    ]
    return found


def _step_type(fields: SpecFields) -> StepType:
    """Without a `type` a step calls a model; an old one that only has a tool and its `input` calls the tool."""
    given = fields.choice("type", StepType)
    if given is not None:
        return given
    old = fields.has("input") and fields.has("tool") and not fields.has("prompt_template")
    return StepType.EXISTING_TOOL if old else StepType.LLM_CALL


def _input_mapping(fields: SpecFields, old_names: OldNames) -> dict[str, Any]:
    if fields.has("input_mapping"):
        value = fields.any("input_mapping")
        if isinstance(value, list | tuple) and all(_is_pair(one) for one in value):
            return {one["name"]: one.get("value") for one in value}
        return fields.mapping("input_mapping")
    for key in ("input", "input_parameters"):
        old = fields.keep(key)
        if isinstance(old, Mapping):
            return {name: old_names.translate(inner) for name, inner in old.items()}
        if old is not None:
            fields.wrong(key, "an object", old)
    return {}


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("name"), str)
        and value.keys() <= {"name", "value"}
    )


def _output_name(fields: SpecFields) -> str:
    given = fields.text("output_name")
    old = fields.keep("output_key")
    return given or (old if isinstance(old, str) and old else "output")


def _depends_on(fields: SpecFields) -> tuple[str, ...]:
    given = fields.texts("depends_on")
    before = fields.keep("input_from_step")
    before = [before] if isinstance(before, str) else before if isinstance(before, list) else []
    return tuple(dict.fromkeys((*given, *(one for one in before if isinstance(one, str) and one))))


def _group(fields: SpecFields) -> int | str | None:
    value = fields.any("parallel_group")
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    fields.wrong("parallel_group", "a whole number or a name", value)
    return None


@dataclass(frozen=True)
class PartialSpec:
    """What could be read, and what could not. With problems, `spec` is for finding further ones only."""

    spec: WorkflowSpec
    problems: list[str]


def read_text(text: str | bytes) -> WorkflowSpec:
    """The workflow of a JSON document. Raises `SpecError` with everything that cannot be read."""
    return read_spec(load_json(text))


def read_spec(data: Any) -> WorkflowSpec:
    """The workflow that a JSON object says. Raises `SpecError` with everything that cannot be read."""
    partial = read_leniently(data)
    if partial.problems:
        raise SpecError(partial.problems)
    return partial.spec


def read_leniently(data: Any) -> PartialSpec:
    """As much of a workflow as can be read. Raises `SpecError` only for what is no JSON object at all."""
    require_json(data)
    if not isinstance(data, Mapping):
        raise SpecError([f"a workflow is a JSON object, not {shown(data)}"])
    problems: list[str] = []
    spec = _workflow(data, "", problems, depth=1)
    return PartialSpec(spec, trimmed(problems))


def _workflow(
    data: Mapping[str, Any], where: str, problems: list[str], *, depth: int, name: str | None = None
) -> WorkflowSpec:
    fields = SpecFields(data, where, problems)
    old_inputs = not fields.has("inputs") and isinstance(fields.keep("input_parameters"), Mapping | list)
    inputs = _named(fields, "inputs", "type", value=fields.keep("input_parameters") if old_inputs else None)
    steps = fields.any("steps")
    if not isinstance(steps, list | tuple):
        if steps is not None:
            fields.wrong("steps", "a list", steps)
        steps = []
    listed = SpecFields(fields.mapping("dependencies"), f"{where}dependencies: ", problems)
    old_names = OldNames(inputs, list(steps))

    def nested(data: Mapping[str, Any], here: str, name: str) -> WorkflowSpec | None:
        if depth < DEEPEST:
            return _workflow(data, here, problems, depth=depth + 1, name=name)
        problems.append(f"{here}workflows may lie at most {DEEPEST} deep inside one another")
        return None

    workflow_id = fields.text("workflow_id") or name
    if workflow_id is None:
        fields.missing("workflow_id")
    spec = fields.fill(
        WorkflowSpec,
        workflow_id=workflow_id or "",
        inputs=tuple(_input(name, one, where, problems) for name, one in inputs.items()),
        outputs=tuple(
            _output(name, one, where, problems)
            for name, one in _named(fields, "outputs", "source_reference").items()
        ),
        steps=_in_their_order(
            tuple(
                step
                for number, one in enumerate(steps, start=1)
                if (step := read_step(one, number, old_names, where, problems, nested)) is not None
            )
        ),
        required_tools=listed.texts("llm_tools"),
        python_tools=listed.texts("python_tools"),
        pip_packages=_packages(listed),
        tool_definitions={
            name: _tool(name, one, where, problems)
            for name, one in _named(fields, "tools", "source_code", name_key="tool_id").items()
        },
    )
    return replace(spec, extra={**spec.extra, "dependencies": listed.rest()}) if listed.rest() else spec


def _in_their_order(steps: tuple[WorkflowStep, ...]) -> tuple[WorkflowStep, ...]:
    """The steps of an old file, each waiting for those before it, unless it says itself what it waits for; steps of one
    parallel group that stand together run together. A file whose steps need later ones was never run in its order."""
    if not any(_ORDERED & step.extra.keys() for step in steps):
        return steps
    place = {step.step_id: number for number, step in enumerate(steps)}
    for number, step in enumerate(steps):
        waits = needed(step.depends_on, references_of(step, lenient=True))
        if any(place.get(each, -1) >= number for each in waits):
            return steps
    before: tuple[str, ...] = ()
    batch: list[WorkflowStep] = []
    found = []
    for step in steps:
        if not batch or step.parallel_group is None or step.parallel_group != batch[-1].parallel_group:
            before, batch = tuple(each.step_id for each in batch), []
        batch.append(step)
        found.append(step if step.depends_on else replace(step, depends_on=before))
    return tuple(found)


def _input(name: str, data: Mapping[str, Any], where: str, problems: list[str]) -> WorkflowInput:
    fields = SpecFields(_nameless(data, name), f"{where}input {name}: ", problems)
    return fields.fill(WorkflowInput, name=name, default=fields.any("default"))


def _output(name: str, data: Mapping[str, Any], where: str, problems: list[str]) -> WorkflowOutput:
    fields = SpecFields(_nameless(data, name), f"{where}output {name}: ", problems)
    return fields.fill(WorkflowOutput, name=name)


def _tool(name: str, data: Mapping[str, Any], where: str, problems: list[str]) -> ToolDefinition:
    fields = SpecFields(data, f"{where}tool {name}: ", problems)
    return fields.fill(
        ToolDefinition,
        tool_id=fields.text("tool_id") or name,
        tool_type=fields.text("type") or "llm",
        api_spec=fields.mapping("api_spec") if fields.has("api_spec") else None,
    )


def _packages(fields: SpecFields) -> tuple[Mapping[str, Any], ...]:
    """Packages as objects; a requirement written as one text is taken apart."""
    value = fields.any("pip_packages")
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        fields.wrong("pip_packages", "a list", value)
        return ()
    found = []
    for one in value:
        if isinstance(one, str) and (parts := re.fullmatch(r"\s*([\w.\[\],-]+?)\s*([<>=!~].*)?", one)):
            found.append({"name": parts[1]} | ({"version": parts[2].strip()} if parts[2] else {}))
        elif isinstance(one, Mapping) and isinstance(one.get("name"), str):
            found.append(dict(one))
        else:
            fields.wrong("pip_packages", "objects with a name", one)
    return tuple(found)


def _named(
    fields: SpecFields, key: str, short: str, *, value: Any = None, name_key: str = "name"
) -> dict[str, dict[str, Any]]:
    """Things that have names, from an object or a list; a text in place of a thing is its `short` key."""
    value = fields.any(key) if value is None else value
    if value is None:
        return {}
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list | tuple):
        pairs = [(one.get(name_key) if isinstance(one, Mapping) else None, one) for one in value]
    else:
        fields.wrong(key, "an object", value)
        return {}
    found: dict[str, dict[str, Any]] = {}
    for name, one in pairs:
        if isinstance(one, str):
            one = {short: one}
        if not isinstance(name, str) or not isinstance(one, Mapping):
            fields.wrong(key, f"objects with a {name_key}", one)
        elif name in found:
            fields.problems.append(f"{key} has {name!r} twice")
        else:
            found[name] = dict(one)
    return found


def _nameless(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Without the name, where that is only said twice."""
    return {key: value for key, value in data.items() if (key, value) != ("name", name)}
