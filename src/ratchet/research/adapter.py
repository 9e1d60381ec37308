"""What a task is: everything about it that the loop needs to know, and nothing that it already knows.

Most tasks are a folder with a `task.toml`, which becomes a `TaskAdapter` as it is. What TOML cannot say is said by a
subclass that overrides a property or a method.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.kernel import Direction, PlacementChoice, TrialStatus
from ratchet.sandbox import Bounds
from ratchet.workspaces.trees import is_litter

if TYPE_CHECKING:
    from ratchet.engines import EngineTool


@dataclass(frozen=True, slots=True)
class SessionFacts:
    run_id: int
    specialist: str
    directory: Path


class Hooks:
    """Override what is wanted. Whatever a hook raises ends the session as failed: a guard that breaks must not open."""

    async def session_started(self, session: SessionFacts) -> None:
        """Called before the engine begins."""

    async def session_ended(self, session: SessionFacts, problem: str | None) -> None:
        """Called when it has ended; `problem` says why it failed, if it did."""

    async def before_tool(self, session: SessionFacts, tool: str, given: Mapping[str, Any]) -> str | None:
        """Asked before one of Ratchet's tools runs. A text forbids it and goes to the model."""
        return None

    async def after_tool(
        self, session: SessionFacts, tool: str, given: Mapping[str, Any], answer: str
    ) -> str:
        """What the model gets instead of `answer`, which may also be an error."""
        return answer


class AllHooks(Hooks):
    """Several as one: each is called, the first objection counts, and answers go through all in order."""

    def __init__(self, hooks: Sequence[Hooks]) -> None:
        self._hooks = tuple(hooks)

    async def session_started(self, session: SessionFacts) -> None:
        for each in self._hooks:
            await each.session_started(session)

    async def session_ended(self, session: SessionFacts, problem: str | None) -> None:
        for each in self._hooks:
            await each.session_ended(session, problem)

    async def before_tool(self, session: SessionFacts, tool: str, given: Mapping[str, Any]) -> str | None:
        for each in self._hooks:
            objection = await each.before_tool(session, tool, given)
            if objection is not None:
                return objection
        return None

    async def after_tool(
        self, session: SessionFacts, tool: str, given: Mapping[str, Any], answer: str
    ) -> str:
        for each in self._hooks:
            answer = await each.after_tool(session, tool, given, answer)
        return answer


_BEFORE_SCORE = (
    "exp_id",
    "timestamp",
    "specialist",
    "parent_exp",
    "baseline_exp",
    "domain",
    "hypothesis",
    "expected_delta",
    "status",
)
_AFTER_SCORE = ("delta_vs_best", "total_s", "job_name", "snapshot_path", "notes")
FIXED_COLUMNS = frozenset({*_BEFORE_SCORE, *_AFTER_SCORE})
"""The columns of results.tsv that every task has; no score may be called like one of them."""


def measured_columns(columns: Sequence[str], score: str) -> tuple[str, ...]:
    """The columns with numbers about a trial that are not its score. Total time is one of them."""
    texts = FIXED_COLUMNS - {"total_s"}
    return tuple(each for each in columns if each not in texts and each != score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How the recipe or the evaluator is run: as a command, or as a function that a sandboxed node calls.

    A command may name `{python}`, `{candidate}`, `{inputs}`, `{data}`, `{out}` and `{seed}`. A `function` lies in
    `file`; it is given one JSON value and returns one. `modules` are imported before it starts, which makes it quick. A
    command may have another `python` than Ratchet's, with all of its environment to read, or a container `image` in
    which it runs; `requires` are the modules that it cannot do without.
    """

    argv: tuple[str, ...] = ()
    python: str = ""
    image: str = ""
    requires: tuple[str, ...] = ()
    file: str = ""
    function: str = ""
    modules: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def is_node(self) -> bool:
        return bool(self.function)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorProgram(Program):
    """How a score is made. `file` lies in the evaluator's directory.

    `prepare` is another function of that file. It is given the seed and the split, and makes the question that the
    trial and then the evaluator get. `reads_candidate` shows the checkout to the evaluator.
    """

    prepare: str = ""
    reads_candidate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCommand:
    """A tool of a task that is a program: run in the sandbox with the session's directory to read, JSON on stdin.

    The `file` of its program lies in the task's folder.
    """

    name: str
    description: str
    program: Program
    input_schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Specialist:
    """Who proposes. `engine` and `model` are the run's unless they are given here; a higher `priority` goes first."""

    name: str
    preamble: str = ""
    domain: str = ""
    analyst: bool = False
    engine: str | None = None
    model: str | None = None
    priority: int = 0


MOST_SLOTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Where trials run side by side: one trial holds one slot. `kind` is `cpu` or `gpu`.

    A CPU slot is told to the trial by its name as the CPUs it may run on. A GPU slot names GPUs by number or UUID, and
    a trial that is a command sees the device nodes of those alone; `devices` names the nodes of a slot where they are
    others. Without names there are `count`, by default as many as the machine has CPUs, and trials share them as they
    like.
    """

    kind: str = "cpu"
    names: tuple[str, ...] = ()
    count: int | None = None
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """Data that lies where it lies and is never copied: programs see it as /data/NAME.

    `path` is absolute, begins with ~ or with the name of a variable ($DATA/train), or lies below the task's folder.
    `pin` is `hash`, over the content and worked out once, or `stat`, over sizes and times. `readers` are `trial`,
    `apply` and `evaluator`; `about` says how to get it.
    """

    name: str
    path: str
    pin: str = "hash"
    readers: tuple[str, ...] = ("trial",)
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRule:
    """What a score must do to be kept; see `research.keeping`. `policy` is `confident` or `strict`.

    `deterministic` says that one measurement is enough. Else the baseline is measured `baseline_repeats` times for its
    noise, and a promising trial up to `most` times, side by side with the best, and up to four times as often while it
    is about to be kept. `alpha` bounds the share of false keeps in a whole run. With `find_effect`, a gain of that size
    is found in nine of ten trials that have it, whatever rounds it takes. `held_out` says that the evaluator
    knows a split that no search sees: a new best must not be worse there by more than `held_out_tolerance`.
    """

    policy: str = "confident"
    deterministic: bool = False
    baseline_repeats: int = 5
    least: int = 3
    most: int = 12
    alpha: float = 0.05
    min_effect: float = 0.0
    find_effect: float = 0.0
    seed: int = 0
    held_out: bool = False
    held_out_tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCheck:
    """How large a candidate is, and how large it may be. Without a limit it is never too large."""

    total_bytes: int
    limit_bytes: int | None = None

    @property
    def verdict(self) -> str:
        """`block` above the limit, `warn` in the last hundredth below it, else `ok`."""
        if self.limit_bytes is None or 100 * self.total_bytes <= 99 * self.limit_bytes:
            return "ok"
        return "warn" if self.total_bytes <= self.limit_bytes else "block"


class Refused(Exception):
    """A candidate that is not worth a measurement. `status` is what its trial ends with."""

    def __init__(self, status: TrialStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(kw_only=True)
class TaskAdapter:
    """One task. The attributes are facts, the methods are what a subclass may do differently.

    `root` is the folder. Of the paths below it, `recipe` may be edited by specialists (files or whole directories),
    `stage_files` (source → place) lie beside it for everybody to read and nobody to change, `evaluator_dir` is seen by
    the evaluator alone, and `inputs` by the trial and the evaluator; on the held-out split `held_out_inputs` takes the
    place of `inputs`. Files that are no text belong to a candidate only where `binary_files`, which may have wildcards,
    names them. `apply` is a second program of the candidate: it starts in what the trial has left and sees nothing else
    of it, gets the question in its place, and its limits are apart. A session may make `trials_per_session`, or
    `trials_when_cheap` where a measurement takes a few seconds. A `variant` is one of the `variants` that the
    folder describes, `entry_point` names the installed code that made the task when its folder does not hold it all,
    and `sha256` is the hash of a folder that was copied for a run.
    """

    name: str
    root: Path
    description: str = ""
    recipe: tuple[str, ...] = ()
    stage_files: Mapping[str, str] = field(default_factory=dict)
    output_dirs: tuple[str, ...] = ()
    binary_files: tuple[str, ...] = ()
    inputs: str | None = None
    held_out_inputs: str | None = None
    evaluator_dir: str = "evaluator"
    data: tuple[DataSource, ...] = ()
    trial: Program | None = None
    apply: Program | None = None
    evaluator: EvaluatorProgram = field(default_factory=EvaluatorProgram)
    processes_per_measurement: int = 1
    score_field: str = "score"
    score_label: str = ""
    direction: Direction = Direction.MAX
    columns: tuple[str, ...] = ()
    keep: KeepRule = field(default_factory=KeepRule)
    slots: Slots = field(default_factory=Slots)
    placement: PlacementChoice = field(default_factory=PlacementChoice)
    environment: Mapping[str, str] = field(default_factory=dict)
    doers: tuple[Specialist, ...] = (Specialist(name="generalist"),)
    analysts: tuple[Specialist, ...] = ()
    knowledge_dir: str = "knowledge"
    size_limit_bytes: int | None = None
    size_paths: tuple[str, ...] = ()
    rules: str = ""
    limits: str = ""
    keep_semantics: str = ""
    known_best: str = ""
    plain_baseline: str = ""
    baseline_score: float | None = None
    requires_calibrated_baseline: bool = False
    bootstrap_hypothesis: str = "the recipe as it came"
    baseline_note: str = ""
    job_prefix: str = ""
    max_trials: int | None = None
    max_hours: float | None = None
    hours_without_keep: float | None = None
    session_seconds: float = 1800.0
    trials_per_session: int = 1
    trials_when_cheap: int = 1
    tool_commands: tuple[ToolCommand, ...] = ()
    variant: str | None = None
    variants: tuple[str, ...] = ()
    entry_point: str = ""
    sha256: str = ""

    @property
    def roster(self) -> tuple[Specialist, ...]:
        return (*self.doers, *self.analysts)

    @property
    def label(self) -> str:
        return self.score_label or self.score_field

    @property
    def tsv_columns(self) -> tuple[str, ...]:
        """The columns of an exported results.tsv. The score's is the one after `status`."""
        return (*_BEFORE_SCORE, self.score_field, *self.columns, *_AFTER_SCORE)

    def job_name(self, specialist: Specialist, number: int) -> str:
        """What a trial is called where processes are listed, such as `cir-opt-0068`."""
        prefix = self.job_prefix or self.name[:3]
        return f"{prefix}-{(specialist.domain or specialist.name)[:4]}-{number:04}"

    def preamble(self, specialist: Specialist) -> str:
        """The end of this specialist's prompt: its scope, what is off limits to it, how far it may go."""
        return specialist.preamble

    def system_prompt(self, specialist: Specialist, prompt: str) -> str:
        """The system prompt of a session, made from `prompt`, which the loop has put together from the parts."""
        return prompt

    def size_check(self, directory: Path) -> SizeCheck:
        """How large the candidate in `directory` is: the files of `size_paths`, or of the recipe without any."""
        paths = (directory / path for path in self.size_paths or self.recipe)
        return SizeCheck(
            total_bytes=sum(size for path in paths for size in _sizes(path)),
            limit_bytes=self.size_limit_bytes,
        )

    def preflight(self, directory: Path) -> None:
        """Look at a candidate before it costs anything. Raises `Refused`."""

    def classify(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """The evaluator's answer as the loop reads it: `score_field` and `measurements`, or `invalid` and `status`."""
        return answer

    def tools(self, directory: Path) -> Sequence[EngineTool]:
        """Tools of this task's own, for a session in `directory`."""
        return ()

    def hooks(self) -> Sequence[Hooks]:
        """Hooks that are called in a session and may forbid what it does."""
        return ()


def _sizes(path: Path) -> Iterator[int]:
    """The sizes of the files at and below `path` but for litter; none when it is absent. A link counts as itself."""
    if path.is_symlink() or path.is_file():
        yield path.lstat().st_size
        return
    for directory, folders, names in os.walk(path, followlinks=False):
        folders[:] = [name for name in folders if not is_litter(name)]
        yield from (Path(directory, name).lstat().st_size for name in names if not is_litter(name))
