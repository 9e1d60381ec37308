"""The tables of a task.toml, key by key: what each may hold. What keys must be together is checked later.

Every key may be left out, because a variant says only what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from ratchet.config.section import Count, Real, Seconds, Section
from ratchet.kernel import is_name
from ratchet.research.adapter import MOST_SLOTS
from ratchet.workspaces.names import unwanted_name

_LARGEST = 2**53
_TEN_YEARS = 315_360_000.0


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError("must be a name: up to 64 small letters, digits, dots, dashes and underscores")
    return text


def _relative(path: str) -> str:
    if any(unwanted_name(part) for part in path.split("/")):
        raise ValueError("must be a path below the task's folder, such as src/recipe.py")
    return path


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable text")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not have a NUL in it")
    return text


Name = Annotated[str, AfterValidator(_name)]
Place = Annotated[str, AfterValidator(_relative)]
Line = Annotated[str, Field(max_length=1_000), AfterValidator(_one_line)]
Text = Annotated[str, Field(max_length=100_000)]
Word = Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_no_nul)]
Identifier = Annotated[str, Field(pattern=r"^[^\W\d]\w*$")]
Module = Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")]
Column = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,62}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Slot = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+(,[A-Za-z0-9-]+)*$", max_length=200)]
Many = Annotated[Count, Field(le=_LARGEST)]
Size = Annotated[Count, Field(le=1024**3)]
Span = Annotated[Seconds, Field(le=_TEN_YEARS)]
AtLeastZero = Annotated[Real, Field(ge=0)]


class Table(Section):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _is_table(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError("must be a table")
        return value


class TaskTable(Table):
    name: Name | None = None
    description: Text = ""
    recipe: list[Place] = Field(default_factory=list)
    inputs: Place | None = None
    held_out_inputs: Place | None = None
    stage_files: dict[Place, Place] = Field(default_factory=dict)
    output_dirs: list[Place] = Field(default_factory=list)
    environment: dict[Variable, Annotated[str, AfterValidator(_no_nul)]] = Field(default_factory=dict)
    job_prefix: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,3}$")] | None = None
    known_best: Line = ""
    plain_baseline: Line = ""


class ScoreTable(Table):
    field: Column = "score"
    label: Line = ""
    direction: Literal["max", "min"] = "max"
    columns: list[Column] = Field(default_factory=list)


class ProgramTable(Table):
    function: Identifier | None = None
    file: Place | None = None
    modules: list[Module] = Field(default_factory=list)
    command: list[Word] | None = None
    seconds: Span | None = None
    cpu_seconds: Span | None = None
    memory_mb: Size | None = None
    processes: Annotated[Count, Field(le=100_000)] | None = None
    output_kb: Size | None = None
    file_mb: Size | None = None


class TrialTable(ProgramTable):
    processes_per_measurement: Annotated[Count, Field(le=1_000)] = 1


class EvaluatorTable(ProgramTable):
    directory: Place = "evaluator"
    prepare: Identifier | None = None
    reads_candidate: bool | None = None


class KeepTable(Table):
    policy: Literal["confident", "strict"] = "confident"
    deterministic: bool = False
    baseline_repeats: Annotated[Count, Field(le=1_000)] = 5
    least: Annotated[Count, Field(le=1_000)] = 3
    most: Annotated[Count, Field(le=1_000)] = 12
    alpha: Annotated[Real, Field(gt=0, lt=0.5)] = 0.05
    min_effect: AtLeastZero = 0.0
    seed: Annotated[int, Field(ge=0, le=_LARGEST // 2)] = 0
    held_out: bool | None = None
    held_out_tolerance: AtLeastZero = 0.0


class SlotsTable(Table):
    kind: Literal["cpu", "gpu"] = "cpu"
    names: list[Slot] = Field(default_factory=list)
    count: Annotated[Count, Field(le=MOST_SLOTS)] | None = None


class SizeTable(Table):
    limit_bytes: Many | None = None
    paths: list[Place] = Field(default_factory=list)


class BaselineTable(Table):
    score: Real | None = None
    requires_calibration: bool = False
    hypothesis: Line | None = None
    note: Line = ""


class StopsTable(Table):
    trials: Many | None = None
    hours: Span | None = None
    hours_without_keep: Span | None = None


class SessionsTable(Table):
    seconds: Span | None = None
    trials: Many | None = None


class PromptTable(Table):
    rules: Text = ""
    limits: Text = ""
    keep_semantics: Text = ""
    knowledge: Place | None = None


class SpecialistTable(Table):
    name: Name | None = None
    preamble: Text | None = None
    preamble_file: Place | None = None
    domain: Line = ""
    analyst: bool = False
    engine: Line | None = None
    model: Line | None = None
    priority: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] | None = None


class ToolTable(ProgramTable):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")] | None = None
    description: Text = ""
    input_schema: dict[str, Any] = Field(default_factory=dict)


class Tables(Table):
    task: TaskTable = Field(default_factory=TaskTable)
    score: ScoreTable = Field(default_factory=ScoreTable)
    trial: TrialTable | None = None
    evaluator: EvaluatorTable | None = None
    keep: KeepTable = Field(default_factory=KeepTable)
    slots: SlotsTable = Field(default_factory=SlotsTable)
    size: SizeTable = Field(default_factory=SizeTable)
    baseline: BaselineTable = Field(default_factory=BaselineTable)
    stops: StopsTable = Field(default_factory=StopsTable)
    sessions: SessionsTable = Field(default_factory=SessionsTable)
    prompt: PromptTable = Field(default_factory=PromptTable)
    specialist: list[SpecialistTable] | None = None
    tool: list[ToolTable] = Field(default_factory=list)


class Variant(Tables):
    agents: Annotated[Count, Field(le=1_000)] | None = None


class TaskFile(Tables):
    variants: dict[Name, Variant] = Field(default_factory=dict)


def tables() -> dict[str, type[Table]]:
    """Every table that a task.toml may have, by its name."""
    found = {name: _table_in(field.annotation) for name, field in Tables.model_fields.items()}
    return {name: table for name, table in found.items() if table is not None}


def _table_in(annotation: Any) -> type[Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next(filter(None, map(_table_in, get_args(annotation))), None)
