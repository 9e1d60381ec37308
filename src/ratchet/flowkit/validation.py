"""What is wrong with a workflow, found before anything of it runs."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from .conditions import read_condition
from .errors import SpecError, trimmed
from .graph import cycle_message, cycles, needed, own_names, references_of
from .inputs import TYPES, check_inputs, parse_input_texts, pattern_problem, value_problems
from .reader import DEEPEST, OLD_KEYS
from .references import (
    NO_NAMES,
    OF_ITEMS,
    OF_ROUNDS,
    Own,
    Reference,
    find_inside,
    find_references,
    read_reference,
)
from .spec import (
    WORKFLOW_ID,
    Repeat,
    StepType,
    ToolDefinition,
    WorkflowInput,
    WorkflowOutput,
    WorkflowSpec,
    WorkflowStep,
    listed,
    name_problem,
)
from .templates import names_in
from .value_schema import schema_problems

_ALMOST_BARE = re.compile(r"(?:inputs|steps)\.\S+")
_ALMOST_INSIDE = re.compile(r"\$\{\s*(?:inputs?\b|steps?\b|items?\b|index\b|last(?=[.\[]))[^{}]*\}")
_OTHER_BRACES = re.compile(r"(?<![${])\{\{?\s*(?:inputs|steps)\.[^{}]*\}")
_STEP_KEYS = (
    *("step_id", "type", "description", "tool", "prompt_template", "tool_path", "generate_tool"),
    *("operation_type", "workflow_path", "workflow_spec", "input_mapping", "output_name", "timeout"),
    *("retry_on_failure", "max_retries", "parallel_group", "depends_on", "when", "for_each", "repeat"),
    *("fallback_tool", "backoff_seconds", "backoff_factor", "backoff_most", "backoff_jitter", "cache"),
    *("secrets", "answer_schema", "stream"),
)
_WORKFLOW_KEYS = (
    *("workflow_id", "version", "description", "created_by", "created_at", "tags", "portable"),
    *("inputs", "outputs", "steps", "tools", "dependencies"),
)
# Older files have them; they say nothing that is used.
_OLD_WORKFLOW_KEYS = frozenset({"name", "priority", "output_schema", "metadata"})
_MEANT = {
    "step_type": "type",
    "tool_name": "tool",
    "prompt": "prompt_template",
    "inputs": "input_mapping",
    "needs": "depends_on",
    "condition": "when",
    "if": "when",
    "foreach": "for_each",
    "retries": "max_retries",
    "run_if": "when",
    "only_if": "when",
    "while": "repeat",
    "until": "repeat",
    "loop": "repeat",
    "max_iterations": "repeat",
    "secret": "secrets",
    "jitter": "backoff_jitter",
    "backoff": "backoff_seconds",
    "schema": "answer_schema",
    "retry": "retry_on_failure",
    "cached": "cache",
    "streaming": "stream",
    "lines": "stream",
}
LONGEST_SECONDS = 31 * 24 * 3600.0
MOST_RETRIES = 100
LONGEST_BACKOFF = 3600.0
MOST_STEPS = 100_000
MOST_ROUNDS = 10_000
LARGEST_FACTOR = 100.0
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


def unknown_keys(kind: Literal["workflow", "step"], extra: Mapping[str, Any]) -> Iterator[str]:
    """Keys that do not exist, with the nearest that does. What begins with `x-` is the author's own."""
    for key in extra:
        if key.startswith("x-") or key in OLD_KEYS or (kind == "workflow" and key in _OLD_WORKFLOW_KEYS):
            continue
        meant = _meant(kind, key)
        hint = f"did you mean {meant!r}?" if meant else "a key of your own begins with x-"
        yield f"there is no key {key!r}; {hint}"


def mistaken_references(value: Any, *, own: Own = NO_NAMES) -> Iterator[str]:
    """Texts that look like a reference and are none."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, Mapping):
            waiting.extend(reversed(list(inner.values())))
        elif isinstance(inner, list | tuple):
            waiting.extend(reversed(inner))
        elif isinstance(inner, str):
            if _ALMOST_BARE.fullmatch(inner) and read_reference(inner, own=own) is None:
                yield f"{inner!r} looks like a reference and is none"
            yield from mistakes_inside(inner, own=own)


def mistakes_inside(text: str, *, own: Own = NO_NAMES) -> Iterator[str]:
    """Parts of a template that look like a reference and are none."""
    if "{" not in text:
        return
    for match in _ALMOST_INSIDE.finditer(text):
        escaped = text.startswith("$", match.start() - 1) and match.start() > 0
        if not escaped and read_reference(match[0], own=own) is None:
            yield f"{match[0]!r} looks like a reference and is none"
    for match in _OTHER_BRACES.finditer(text):
        yield f"{match[0]!r} is no reference; write ${{{match[0].strip('{} ')}}}"


@lru_cache(maxsize=1024)
def _meant(kind: Literal["workflow", "step"], key: str) -> str | None:
    if kind == "step" and key in _MEANT:
        return _MEANT[key]
    known = _STEP_KEYS if kind == "step" else _WORKFLOW_KEYS
    return next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.6)), None)


@dataclass(frozen=True)
class Scope:
    """One workflow, `depth` inside others. `tools` are those that exist, if that is known."""

    spec: WorkflowSpec
    inputs: Mapping[str, WorkflowInput]
    outputs: Mapping[str, str]
    """The name of each step's output."""
    tools: frozenset[str] | None
    depth: int

    @classmethod
    def of(cls, spec: WorkflowSpec, tools: frozenset[str] | None, *, depth: int) -> Scope:
        return cls(
            spec,
            {each.name: each for each in spec.inputs},
            {step.step_id: step.output_name for step in spec.steps},
            None if tools is None else tools | spec.tool_definitions.keys(),
            depth,
        )

    def value_problems(self, value: Any, *, own: Own = NO_NAMES) -> Iterator[str]:
        """What is wrong with the references inside a value, and with what only looks like one."""
        if isinstance(value, str) and "." not in value and "{" not in value and not own:
            return
        yield from mistaken_references(value, own=own)
        for reference in find_references(value, own=own):
            yield from self.reference_problems(reference)

    def reference_problems(self, reference: Reference) -> Iterator[str]:
        """Why a reference means nothing here, if so."""
        if reference.kind == "inputs" and reference.name not in self.inputs:
            yield f"{reference}: there is no input {reference.name}{listed(reference.name, self.inputs)}"
        elif reference.kind == "steps":
            yield from self._step_problems(reference)

    def tool_problems(self, name: str) -> Iterator[str]:
        if self.tools is not None and name not in self.tools:
            yield f"there is no tool {name}{listed(name, self.tools)}"

    def _step_problems(self, reference: Reference) -> Iterator[str]:
        step_id = reference.name
        if step_id not in self.outputs:
            yield f"{reference}: there is no step {step_id}{listed(step_id, self.outputs)}"
        elif len(reference.path) == 1:
            yield f"{reference} names no output; write {reference}.{self.outputs[step_id]}"
        elif reference.path[1] not in (self.outputs[step_id], "output"):
            yield (
                f"{reference}: step {step_id} has no output {reference.path[1]};"
                f" it is called {self.outputs[step_id]}"
            )


def input_problems(declared: WorkflowInput) -> Iterator[str]:
    where = f"input {declared.name}: "
    problem = name_problem("name", declared.name)
    if problem:
        yield f"an input: {problem}"
    if declared.type not in TYPES:
        yield f"{where}type must be one of {', '.join(TYPES)}, not {declared.type!r}"
        return
    pattern = declared.extra.get("pattern")
    slip = pattern_problem(pattern) if isinstance(pattern, str) else None
    if slip:
        yield f"{where}the pattern {pattern!r} {slip}"
    elif declared.default is not None:
        for problem in value_problems(declared, declared.default):
            yield f"{where}its default does not fit: {problem}"


def output_problems(output: WorkflowOutput, scope: Scope) -> Iterator[str]:
    where = f"output {output.name}: "
    problem = name_problem("name", output.name)
    if problem:
        yield f"an output: {problem}"
    if output.type and output.type not in TYPES:
        yield f"{where}type must be one of {', '.join(TYPES)}, not {output.type!r}"
    reference = read_reference(output.source_reference)
    if reference is None:
        yield (
            f"{where}source_reference must be steps.<step_id>.<output_name> or inputs.<name>,"
            f" not {output.source_reference!r}"
        )
        return
    for problem in scope.reference_problems(reference):
        yield where + problem


def tool_problems(name: str, tool: ToolDefinition, scope: Scope) -> Iterator[str]:
    where = f"tool {name}: "
    if not name or len(name) > 200:
        yield f"{where}a tool needs a name of at most 200 characters"
    if tool.tool_id != name:
        yield f"{where}its tool_id is {tool.tool_id!r}"
    if tool.tool_type == "python" and tool.source_code is None:
        yield f"{where}a python tool that travels with a workflow needs its source_code"
    if not 0 < tool.timeout <= LONGEST_SECONDS:
        yield f"{where}timeout must be between 0 and {LONGEST_SECONDS:.0f} seconds, not {tool.timeout:g}"
    if not math.isfinite(tool.temperature) or tool.temperature < 0:
        yield f"{where}temperature must not be negative, but is {tool.temperature:g}"
    if tool.fallback_tool is not None:
        for problem in scope.tool_problems(tool.fallback_tool):
            yield where + problem


def step_problems(step: WorkflowStep, waits: frozenset[str], scope: Scope) -> Iterator[str]:
    """Everything that is wrong with a step that waits for these, other than its place among the others."""
    yield from _what_it_needs(step)
    yield from _numbers(step)
    problem = name_problem("output_name", step.output_name)
    if problem:
        yield problem
    if step.step_id in waits:
        yield "waits for itself"
    # A tool that is yet to be written, or that lies in the step's own file, may have its name already.
    own = step.generate_tool or step.tool_path is not None
    for tool in (None if own else step.tool_name, step.fallback_tool):
        if tool is not None:
            yield from scope.tool_problems(tool)
    for name in dict.fromkeys(step.depends_on):
        if name not in scope.outputs:
            yield f"depends on {name}, which does not exist{listed(name, scope.outputs)}"
    for name, value in step.input_mapping.items():
        for problem in scope.value_problems(value, own=own_names(step)):
            yield f"input {name}: {problem}"
    if step.prompt_template is not None:
        yield from _prompt(step, step.prompt_template, scope)
    if step.when is not None:
        yield from _condition(step.when, scope)
    if step.repeat is not None:
        yield from _rounds(step, step.repeat, scope)
    yield from _people_and_secrets(step)
    if step.stream and (step.repeat or step.step_type in (StepType.APPROVAL, StepType.SUB_WORKFLOW)):
        yield "only a step that calls a tool or a model, and does so once or for each item, has lines to stream"
    if step.for_each is not None:
        yield from _list(step.for_each, scope)
    if step.workflow_spec is not None:
        yield from _inner_inputs(step, step.workflow_spec)
    if step.extra:
        yield from unknown_keys("step", step.extra)


def _what_it_needs(step: WorkflowStep) -> Iterator[str]:
    match step.step_type:
        case StepType.LLM_CALL if not step.prompt_template and not step.tool_name:
            yield "a model call needs a prompt_template or a tool"
        case StepType.PYTHON_TOOL if not (step.tool_name or step.tool_path or step.generate_tool):
            yield "a python tool needs a tool, a tool_path or generate_tool"
        case StepType.EXISTING_TOOL if not step.tool_name:
            yield "needs a tool"
        case StepType.APPROVAL if not (step.prompt_template or step.description):
            yield "an approval needs a question: a prompt_template or a description"
        case StepType.SUB_WORKFLOW if (step.workflow_path is None) == (step.workflow_spec is None):
            yield "a sub-workflow needs either a workflow_path or a workflow_spec"
    if step.tool_name == "":
        yield "the name of its tool is empty"
    if step.generate_tool and not step.description:
        yield "a tool can only be generated from a description"


def _numbers(step: WorkflowStep) -> Iterator[str]:
    if not 0 < step.timeout <= LONGEST_SECONDS:
        yield f"timeout must be between 0 and {LONGEST_SECONDS:.0f} seconds, not {step.timeout:g}"
    if not 0 <= step.max_retries <= MOST_RETRIES:
        yield f"max_retries must be between 0 and {MOST_RETRIES}, not {step.max_retries}"
    if not 0 <= step.backoff_seconds <= LONGEST_BACKOFF:
        yield f"backoff_seconds must be between 0 and {LONGEST_BACKOFF:.0f}, not {step.backoff_seconds:g}"
    if not 1 <= step.backoff_factor <= LARGEST_FACTOR:
        yield f"backoff_factor must be between 1 and {LARGEST_FACTOR:.0f}, not {step.backoff_factor:g}"
    if not 0 <= step.backoff_most <= LONGEST_BACKOFF:
        yield f"backoff_most must be between 0 and {LONGEST_BACKOFF:.0f}, not {step.backoff_most:g}"
    if not 0 <= step.backoff_jitter <= 1:
        yield f"backoff_jitter must be between 0 and 1, not {step.backoff_jitter:g}"


def _rounds(step: WorkflowStep, repeat: Repeat, scope: Scope) -> Iterator[str]:
    own = own_names(step)
    if not 1 <= repeat.limit <= MOST_ROUNDS:
        yield f"repeat: limit must be between 1 and {MOST_ROUNDS:,}, not {repeat.limit}"
    if not 0 <= repeat.pause_seconds <= LONGEST_BACKOFF:
        yield (
            f"repeat: pause_seconds must be between 0 and {LONGEST_BACKOFF:.0f}, not {repeat.pause_seconds:g}"
        )
    for problem in scope.value_problems(repeat.start, own=own - OF_ROUNDS):
        yield f"repeat: start: {problem}"
    try:
        references = read_condition(repeat.until).references
    except SpecError as error:
        yield from (f"repeat: until: {problem}" for problem in error.problems)
        return
    for reference in references:
        if reference.kind in OF_ITEMS and reference.kind not in own:
            yield f"repeat: until: {reference} is only known in a step with for_each"
        for problem in scope.reference_problems(reference):
            yield f"repeat: until: {problem}"


def _people_and_secrets(step: WorkflowStep) -> Iterator[str]:
    if step.answer_schema is not None:
        if step.step_type is not StepType.APPROVAL:
            yield "an answer_schema says what a person answers, so only an approval has one"
        else:
            yield from (f"answer_schema: {problem}" for problem in schema_problems(step.answer_schema))
    if step.secrets and (step.step_type is not StepType.PYTHON_TOOL or step.tool_path is None):
        yield "secrets are given to the file of a python_tool (tool_path); any other tool names its own"
    for name in step.secrets:
        if _VARIABLE.fullmatch(name) is None:
            yield f"secrets: {name[:80]!r} is no name of a variable; it never holds the secret itself"


def _prompt(step: WorkflowStep, template: str, scope: Scope) -> Iterator[str]:
    own = own_names(step)
    for problem in mistakes_inside(template, own=own):
        yield f"prompt_template: {problem}"
    for reference in find_inside(template, own=own):
        for problem in scope.reference_problems(reference):
            yield f"prompt_template: {problem}"
    for name in names_in(template):
        if name not in step.input_mapping:
            yield (
                f"prompt_template has {{{name}}}, but input_mapping has no {name}"
                f" (write {{{{{name}}}}} for plain braces)"
            )


def _condition(text: str, scope: Scope) -> Iterator[str]:
    try:
        references = read_condition(text).references
    except SpecError as error:
        yield from error.problems
        return
    for reference in references:
        if reference.kind not in ("inputs", "steps"):
            yield f"when: {reference} is not known yet; the condition is asked once, before the step begins"
        for problem in scope.reference_problems(reference):
            yield f"when: {problem}"


def _list(value: Any, scope: Scope) -> Iterator[str]:
    for problem in scope.value_problems(value):
        yield f"for_each: {problem}"
    if isinstance(value, list | tuple):
        return
    reference = read_reference(value) if isinstance(value, str) else None
    if reference is None:
        yield "for_each needs a list or a reference to one"
    elif reference.kind == "inputs" and len(reference.path) == 1 and reference.name in scope.inputs:
        kind = scope.inputs[reference.name].type
        if kind != "array":
            yield f"for_each needs a list, but input {reference.name} is of the type {kind}"


def _inner_inputs(step: WorkflowStep, inner: WorkflowSpec) -> Iterator[str]:
    """What a workflow inside a step is given, next to what it declares."""
    declared = {each.name: each for each in inner.inputs}
    for name in step.input_mapping:
        if name not in declared:
            yield f"its workflow has no input {name}{listed(name, declared)}"
    for name, one in declared.items():
        value = step.input_mapping.get(name)
        if value is None:
            if one.required and one.default is None:
                yield f"its workflow needs the input {name}"
        elif not find_references(value, own=own_names(step)):
            yield from value_problems(one, value)


__all__ = ["check_inputs", "check_spec", "parse_input_texts", "require_valid"]


def check_spec(spec: WorkflowSpec, *, known_tools: Collection[str] | None = None) -> list[str]:
    """One sentence for each thing that is wrong; none for a workflow that can run.

    With `known_tools`, a step whose tool is neither among them nor carried by the workflow is wrong as well.
    """
    return trimmed(
        where + problem for where, scope in _scopes(spec, known_tools) for problem in _problems(scope)
    )


def require_valid(spec: WorkflowSpec, *, known_tools: Collection[str] | None = None) -> None:
    """Raise `SpecError` if the workflow cannot run as it is written."""
    problems = check_spec(spec, known_tools=known_tools)
    if problems:
        raise SpecError(problems)


def _scopes(spec: WorkflowSpec, known_tools: Collection[str] | None) -> Iterator[tuple[str, Scope]]:
    """The workflow and all that lie inside it, each with the place where it stands."""
    tools = None if known_tools is None else frozenset(known_tools)
    waiting = [("", Scope.of(spec, tools, depth=1))]
    while waiting:
        where, scope = waiting.pop()
        yield where, scope
        waiting += [
            (
                f"{where}step {step.step_id}: ",
                Scope.of(step.workflow_spec, scope.tools, depth=scope.depth + 1),
            )
            for step in reversed(scope.spec.steps)
            if step.workflow_spec is not None and scope.depth <= DEEPEST
        ]


def _problems(scope: Scope) -> Iterator[str]:
    spec = scope.spec
    if scope.depth > DEEPEST:
        yield f"workflows may lie at most {DEEPEST} deep inside one another"
        return
    problem = name_problem("workflow_id", spec.workflow_id, WORKFLOW_ID)
    if problem:
        yield problem
    yield from unknown_keys("workflow", spec.extra)
    for declared in spec.inputs:
        yield from input_problems(declared)
    for output in spec.outputs:
        yield from output_problems(output, scope)
    for name, tool in spec.tool_definitions.items():
        yield from tool_problems(name, tool, scope)
    yield from _twice("input", [each.name for each in spec.inputs])
    yield from _twice("output", [each.name for each in spec.outputs])
    yield from _problems_of_steps(scope)


def _problems_of_steps(scope: Scope) -> Iterator[str]:
    steps = scope.spec.steps
    if not steps:
        yield "the workflow needs at least one step"
    if len(steps) > MOST_STEPS:
        yield f"the workflow has {len(steps):,} steps; at most {MOST_STEPS:,} are possible"
        return
    edges = {}
    for number, step in enumerate(steps, start=1):
        problem = name_problem("step_id", step.step_id)
        if problem:
            yield f"step {number}: {problem}"
        waits = needed(step.depends_on, references_of(step, lenient=True))
        # One that waits for itself is named here and is no circle any more.
        edges[step.step_id] = waits - {step.step_id}
        for problem in step_problems(step, waits, scope):
            yield f"step {step.step_id}: {problem}"
    yield from _twice("step", [step.step_id for step in steps])
    for cycle in cycles(edges):
        yield cycle_message(cycle)


def _twice(kind: str, names: list[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{count} {kind}s are called {name!r}"
