"""What is wrong with one step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .conditions import read_condition
from .definition_checks import LONGEST_SECONDS
from .errors import SpecError
from .inputs import value_problems
from .mistakes import mistakes_inside, unknown_keys
from .naming import listed, name_problem
from .prompts import names_in
from .references import find_inside, find_references, read_reference
from .scope import Scope
from .spec import StepType, WorkflowSpec, WorkflowStep

MOST_RETRIES = 100
LONGEST_BACKOFF = 3600.0


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
        for problem in scope.value_problems(value, items=step.for_each is not None):
            yield f"input {name}: {problem}"
    if step.prompt_template is not None:
        yield from _prompt(step, step.prompt_template, scope)
    if step.when is not None:
        yield from _condition(step.when, scope)
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


def _prompt(step: WorkflowStep, template: str, scope: Scope) -> Iterator[str]:
    items = step.for_each is not None
    for problem in mistakes_inside(template, items=items):
        yield f"prompt_template: {problem}"
    for reference in find_inside(template, items=items):
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
        if reference.kind in ("item", "index"):
            yield f"when: {reference} is not known yet; the condition is asked once, before the list is taken"
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
        elif not find_references(value, items=step.for_each is not None):
            yield from value_problems(one, value)
