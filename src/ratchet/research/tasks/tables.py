"""The tables of a task.toml, key by key: what each may hold. What keys must be together is checked later.

Every key may be left out, because a variant says only what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator

from ratchet.config.schema import explain_invalid
from ratchet.config.section import Count, Real, Seconds, Section
from ratchet.config.sources import Given, Key, dotted, line_of, most_like
from ratchet.judges.reports import BadReport, strict_json
from ratchet.kernel import Misuse, is_name
from ratchet.research.adapter import MOST_SLOTS
from ratchet.research.tasks.folder import read_plain
from ratchet.workspaces.trees import unwanted_name

if TYPE_CHECKING:
    from ratchet.research.adapter import Specialist


# Finding a line reads the whole text; an author who has made more mistakes than this fixes the first of them first.
_MOST_LINES = 20


def explain(error: ValidationError, path: Path, text: str, found: Mapping[str, Any]) -> Misuse:
    """What validation found in `found`, which is what `text` means."""
    wrong = error.errors()
    unknown = [_key(each["loc"]) for each in wrong if each["type"] == "extra_forbidden"]
    if unknown:
        return _unknown(unknown, path, text)
    keys = [_key(each["loc"]) for each in wrong][:_MOST_LINES]
    given = {key: Given(_value(found, key), "file", f"{path}{line_of(text, key)}") for key in keys}
    return explain_invalid([(_key(each["loc"]), each["msg"]) for each in wrong], given)


def _unknown(keys: list[Key], path: Path, text: str) -> Misuse:
    lines = [
        f"{_shown(key)} ({path}{line_of(text, key)}) is unknown; the nearest is {_shown(_nearest(key))}"
        for key in keys[:_MOST_LINES]
    ]
    more = f"\n  and {len(keys) - _MOST_LINES} more" if len(keys) > _MOST_LINES else ""
    many = f"{len(keys)} keys are unknown:\n  " if len(keys) > 1 else ""
    return Misuse(many + "\n  ".join(lines) + more, hint="rename or remove it")


def _nearest(key: Key) -> Key:
    """The key that exists and is spelled most like `key`, in the same variant."""
    variant, plain = (key[:2], key[2:]) if key[0] == "variants" and len(key) > 2 else ((), key)
    return variant + most_like(_without_numbers(plain), _known(bool(variant)))


def _known(in_variant: bool) -> Iterable[Key]:
    for name, table in tables().items():
        yield (name,)
        yield from ((name, key) for key in table.model_fields)
    yield ("agents",) if in_variant else ("variants",)


def _shown(key: Key) -> str:
    return dotted(_without_numbers(key))


def _without_numbers(key: Key) -> Key:
    return tuple(part for part in key if not part.isdecimal())


def _key(location: Iterable[int | str]) -> Key:
    return tuple(map(str, location))


def _value(found: Any, key: Key) -> Any:
    """What stands at `key`, as far as it leads."""
    for part in key:
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            break
    return found


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
DevicePath = Annotated[str, Field(pattern=r"^/([A-Za-z0-9_.:-]+/)*[A-Za-z0-9_.:-]+$")]
Many = Annotated[Count, Field(le=_LARGEST)]
Size = Annotated[Count, Field(le=1024**3)]
Span = Annotated[Seconds, Field(le=_TEN_YEARS)]
AtLeastZero = Annotated[Real, Field(ge=0)]


class TomlTable(Section):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _is_table(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError("must be a table")
        return value


class TaskTable(TomlTable):
    name: Name | None = None
    description: Text = ""
    recipe: list[Place] = Field(default_factory=list)
    inputs: Place | None = None
    held_out_inputs: Place | None = None
    stage_files: dict[Place, Place] = Field(default_factory=dict)
    output_dirs: list[Place] = Field(default_factory=list)
    binary_files: list[Place] = Field(default_factory=list)
    environment: dict[Variable, Annotated[str, AfterValidator(_no_nul)]] = Field(default_factory=dict)
    job_prefix: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,3}$")] | None = None
    known_best: Line = ""
    plain_baseline: Line = ""


class ScoreTable(TomlTable):
    field: Column = "score"
    label: Line = ""
    direction: Literal["max", "min"] = "max"
    columns: list[Column] = Field(default_factory=list)


class ProgramTable(TomlTable):
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


class CommandTable(ProgramTable):
    shared_memory_mb: Size | None = None
    python: Line | None = None
    requires: list[Module] = Field(default_factory=list)


class ApplyTable(CommandTable):
    image: Line | None = None


class TrialTable(ApplyTable):
    processes_per_measurement: Annotated[Count, Field(le=1_000)] = 1


class EvaluatorTable(CommandTable):
    directory: Place = "evaluator"
    prepare: Identifier | None = None
    reads_candidate: bool | None = None


class KeepTable(TomlTable):
    policy: Literal["confident", "strict"] = "confident"
    deterministic: bool = False
    baseline_repeats: Annotated[Count, Field(le=1_000)] = 5
    least: Annotated[Count, Field(le=1_000)] = 3
    most: Annotated[Count, Field(le=1_000)] = 12
    alpha: Annotated[Real, Field(gt=0, lt=0.5)] = 0.05
    min_effect: AtLeastZero = 0.0
    find_effect: AtLeastZero = 0.0
    seed: Annotated[int, Field(ge=0, le=_LARGEST // 2)] = 0
    held_out: bool | None = None
    held_out_tolerance: AtLeastZero = 0.0


class SlotsTable(TomlTable):
    kind: Literal["cpu", "gpu"] = "cpu"
    names: list[Slot] = Field(default_factory=list)
    count: Annotated[Count, Field(le=MOST_SLOTS)] | None = None
    devices: dict[Slot, list[DevicePath]] = Field(default_factory=dict)


class PlacementTable(TomlTable):
    kind: Literal["", "local", "ray", "processes"] = ""
    cpus: Annotated[Real, Field(ge=0)] | None = None
    memory_mb: Count | None = None
    gpus: Annotated[int, Field(ge=0, strict=True)] | None = None
    gpu_type: Line = ""
    labels: dict[Word, Line] = Field(default_factory=dict)
    wall_seconds: Seconds | None = None


Reader = Literal["trial", "apply", "evaluator"]


def _trial_alone() -> list[Reader]:
    return ["trial"]


class DataTable(TomlTable):
    path: Word = ""
    pin: Literal["hash", "stat"] = "hash"
    readers: list[Reader] = Field(default_factory=_trial_alone)
    about: Line = ""


class SizeTable(TomlTable):
    limit_bytes: Many | None = None
    paths: list[Place] = Field(default_factory=list)


class BaselineTable(TomlTable):
    score: Real | None = None
    requires_calibration: bool = False
    hypothesis: Line | None = None
    note: Line = ""


class StopsTable(TomlTable):
    trials: Many | None = None
    hours: Span | None = None
    hours_without_keep: Span | None = None


class SessionsTable(TomlTable):
    seconds: Span | None = None
    trials: Many | None = None


class PromptTable(TomlTable):
    rules: Text = ""
    limits: Text = ""
    keep_semantics: Text = ""
    knowledge: Place | None = None


class SpecialistTable(TomlTable):
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


class Tables(TomlTable):
    task: TaskTable = Field(default_factory=TaskTable)
    score: ScoreTable = Field(default_factory=ScoreTable)
    data: dict[Name, DataTable] = Field(default_factory=dict)
    trial: TrialTable | None = None
    apply: ApplyTable | None = None
    evaluator: EvaluatorTable | None = None
    keep: KeepTable = Field(default_factory=KeepTable)
    slots: SlotsTable = Field(default_factory=SlotsTable)
    placement: PlacementTable = Field(default_factory=PlacementTable)
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


def tables() -> dict[str, type[TomlTable]]:
    """Every table that a task.toml may have, by its name."""
    found = {name: _table_in(field.annotation) for name, field in Tables.model_fields.items()}
    return {name: table for name, table in found.items() if table is not None}


def _table_in(annotation: Any) -> type[TomlTable] | None:
    if isinstance(annotation, type) and issubclass(annotation, TomlTable):
        return annotation
    return next(filter(None, map(_table_in, get_args(annotation))), None)


SWARM_NAME = "swarm_config.json"
_LARGEST_CONFIG = 1024 * 1024
_Priority = Annotated[int, Field(ge=-(2**53), le=2**53)]


class _Models(TomlTable):
    default: Line | None = None
    overrides: dict[str, Line] = Field(default_factory=dict)


class _Priorities(TomlTable):
    default: _Priority | None = None
    overrides: dict[str, _Priority] = Field(default_factory=dict)


class Swarm(TomlTable):
    """What the file says; without one it says nothing."""

    model: _Models = Field(default_factory=_Models)
    scheduler_priority: _Priorities = Field(default_factory=_Priorities)

    def check_names(self, known: Iterable[str], path: Path) -> None:
        """Raise `Misuse` when something is overridden for a specialist that no roster of the task has."""
        names = set(known)
        for name in (*self.model.overrides, *self.scheduler_priority.overrides):
            if name not in names:
                [like] = most_like((name,), ((each,) for each in sorted(names)))
                raise Misuse(
                    f"{path} overrides something for {name!r}, who is in no roster of the task",
                    hint=f"the nearest specialist is {like}",
                )

    def apply(self, specialist: Specialist, own_priority: int | None) -> Specialist:
        """An override is stronger than what task.toml says, and that is stronger than a default."""
        model = self.model.overrides.get(specialist.name) or specialist.model or self.model.default
        priorities = (
            self.scheduler_priority.overrides.get(specialist.name),
            own_priority,
            self.scheduler_priority.default,
        )
        priority = next((each for each in priorities if each is not None), 0)
        return replace(specialist, model=model, priority=priority)


def read_swarm(folder: Path) -> Swarm:
    """Raises `Misuse` for a file that cannot be understood."""
    path = folder / SWARM_NAME
    if not path.exists() and not path.is_symlink():
        return Swarm()
    try:
        said = strict_json(read_plain(path, _LARGEST_CONFIG), str(path))
        return Swarm.model_validate(_without_comments(said))
    except BadReport as error:
        raise Misuse(str(error), hint="fix it or remove it") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise Misuse(
            f"{path} is not understood: {'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}",
            hint='it looks like {"model": {"default": "…", "overrides": {"NAME": "…"}}, "scheduler_priority": {…}}',
        ) from None


def _without_comments(said: Any) -> Any:
    """JSON has no comments, so people write them as keys with an underscore in front."""
    if not isinstance(said, Mapping):
        return said
    return {name: value for name, value in said.items() if not name.startswith("_")}
