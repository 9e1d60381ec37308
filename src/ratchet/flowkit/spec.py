"""A workflow as data: inputs, steps, outputs, and the tools that it carries with it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
WORKFLOW_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LONGEST = 100
_MOST_COMPARED = 300


def name_problem(key: str, name: str, allowed: re.Pattern[str] = NAME) -> str | None:
    """What is wrong with a name, if anything is."""
    if not name:
        return f"{key} is missing"
    if allowed.fullmatch(name):
        return None
    if len(name) > _LONGEST:
        return f"{key} {name[:40]!r}… has {len(name)} characters; at most {_LONGEST} are possible"
    marks = "_, - and ." if allowed is WORKFLOW_ID else "_ and -"
    return f"{key} {name!r} may only have letters, digits, {marks}, and begins with a letter, a digit or _"


def listed(name: str, names: Collection[str]) -> str:
    """The names that there are, as a hint in brackets: those that are like the wrong one, or the first few.

    Nothing if there are many: comparing each wrong name with each right one has no bound.
    """
    if not names:
        return " (there is none)"
    if len(names) > _MOST_COMPARED or len(name) > _LONGEST:
        return ""
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f" (did you mean {' or '.join(near)}?)"
    return f" (there is {', '.join(sorted(names)[:10])}{', …' if len(names) > 10 else ''})"


class StepType(StrEnum):
    """What a step does. `approval` waits for a person and is an addition to the original four."""

    LLM_CALL = "llm_call"
    PYTHON_TOOL = "python_tool"
    SUB_WORKFLOW = "sub_workflow"
    EXISTING_TOOL = "existing_tool"
    APPROVAL = "approval"


class OperationType(StrEnum):
    COMBINER = "combiner"
    TRANSFORMER = "transformer"
    SPLITTER = "splitter"
    FILTER = "filter"
    GENERATOR = "generator"
    VALIDATOR = "validator"


class AtLimit(StrEnum):
    """What becomes of a repeated step whose condition still does not hold after its last round."""

    FAIL = "fail"
    KEEP = "keep"


@dataclass(frozen=True)
class Repeat:
    """A step is run again until something holds of its value, which is `last` in the next round."""

    until: str
    limit: int
    start: Any = None
    """What `last` is in the first round."""
    pause_seconds: float = 0.0
    at_limit: AtLimit = AtLimit.FAIL
    """Whether the step fails then, or keeps the value of the last round."""


@dataclass(frozen=True)
class WorkflowInput:
    name: str
    type: str = "string"
    required: bool = True
    default: Any = None
    description: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the file that the executor does not use, kept so that nothing is lost."""


@dataclass(frozen=True)
class WorkflowOutput:
    name: str
    type: str = ""
    description: str = ""
    source_reference: str = ""
    """`steps.<id>.<output_name>`, or a path below it."""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkflowStep:
    """One step. The last block are additions: they are written only when set, and old files have none of them."""

    step_id: str
    step_type: StepType = StepType.LLM_CALL
    description: str = ""
    tool_name: str | None = None
    prompt_template: str | None = None
    tool_path: str | None = None
    generate_tool: bool = False
    operation_type: OperationType | None = None
    workflow_path: str | None = None
    workflow_spec: WorkflowSpec | None = None
    input_mapping: Mapping[str, Any] = field(default_factory=dict)
    """`inputs.<name>`, `steps.<id>.<output>`, `${…}` around either (also inside a longer text), or a literal."""
    output_name: str = "output"
    timeout: float = 300.0
    retry_on_failure: bool = False
    max_retries: int = 3
    parallel_group: int | str | None = None
    depends_on: tuple[str, ...] = ()

    when: str | None = None
    """Run only if this holds, such as `steps.check.output.score >= 0.5 and inputs.mode != 'fast'`."""
    for_each: Any = None
    """A reference to a list (or a list): the step runs once for each `item`, and its value is the list of results."""
    repeat: Repeat | None = None
    """Run again until a condition holds, at most so often; with `for_each`, each item by itself."""
    fallback_tool: str | None = None
    backoff_seconds: float = 0.5
    """Pause before the first retry."""
    backoff_factor: float = 2.0
    """By how much each pause is longer than the one before."""
    backoff_most: float = 60.0
    """Seconds that no pause is longer than."""
    backoff_jitter: float = 0.2
    """How much of a pause is left to chance, so that steps which failed together do not try again together."""
    secrets: tuple[str, ...] = ()
    """Names of variables that the file of a `python_tool` is given. Other tools name theirs themselves."""
    answer_schema: Mapping[str, Any] | None = None
    """What a person answers to an `approval`, as JSON Schema; the answer is the value of the step then."""
    cache: bool | None = None
    """Whether an earlier result may be used again; if it does not say, whether the tool gives the same one anyway."""
    stream: bool = False
    """Whether its value is a list of lines, of which each is passed on as it comes to a step that is done for each."""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolDefinition:
    """A tool that travels inside a portable workflow."""

    tool_id: str
    name: str = ""
    description: str = ""
    tool_type: str = "llm"
    """`llm`, `python`, `api` or `executable`."""
    model: str | None = None
    system_prompt: str | None = None
    temperature: float = 0.7
    endpoint: str | None = None
    source_code: str | None = None
    requirements: tuple[str, ...] = ()
    api_spec: Mapping[str, Any] | None = None
    retry_on_failure: bool = False
    timeout: float = 300.0
    fallback_tool: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkflowSpec:
    workflow_id: str
    description: str = ""
    version: str = "1.0.0"
    portable: bool = False
    inputs: tuple[WorkflowInput, ...] = ()
    outputs: tuple[WorkflowOutput, ...] = ()
    steps: tuple[WorkflowStep, ...] = ()
    created_by: str = ""
    created_at: str = ""
    tags: tuple[str, ...] = ()
    required_tools: tuple[str, ...] = ()
    python_tools: tuple[str, ...] = ()
    pip_packages: tuple[Mapping[str, Any], ...] = ()
    tool_definitions: Mapping[str, ToolDefinition] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
