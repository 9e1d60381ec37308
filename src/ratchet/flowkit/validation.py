"""What is wrong with a workflow, found before anything of it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from .definition_checks import input_problems, output_problems, tool_problems
from .errors import SpecError
from .graph import cycles, needed, references_of, said
from .inputs import check_inputs, parse_input_texts
from .mistakes import unknown_keys
from .naming import WORKFLOW_ID, name_problem
from .problems import trimmed
from .reading import DEEPEST
from .scope import Scope
from .spec import WorkflowSpec
from .step_checks import step_problems

__all__ = ["check_inputs", "check_spec", "parse_input_texts", "require_valid"]

MOST_STEPS = 100_000


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
        yield said(cycle)


def _twice(kind: str, names: list[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{count} {kind}s are called {name!r}"
