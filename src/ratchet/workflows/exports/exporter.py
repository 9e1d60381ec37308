"""Exports a workflow: everything that it needs in one folder, made from the spec and never changing it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.execution import Inside, Result, StepCall, StepError
from ratchet.flowkit.executor import execute
from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep
from ratchet.flowkit.writer import write_spec, write_text
from ratchet.kernel import Conflict, Misuse, RatchetError, RunId, RunStatus, StepStatus
from ratchet.ledger import Ledger, Run
from ratchet.ledger.runs import get_run, list_steps
from ratchet.runtime import Runtime
from ratchet.tools.call import ToolCallFailed
from ratchet.tools.definition import Tool
from ratchet.tools.environments import environment_for, read_requirements
from ratchet.workflows.export_runner.caller import (
    RECORDED,
    ExportRecording,
    keys_of,
    kind_of,
    write_recording,
)
from ratchet.workflows.exports.contents import (
    ALL,
    RUN_PROGRAM,
    TEST_PROGRAM,
    WASM_NOTES,
    WASM_PROGRAM,
    NoModel,
    check_table,
    kit_files,
    package_json,
    place_of,
    readme,
    requirements_text,
)
from ratchet.workflows.exports.tools import (
    Embedding,
    ModelUse,
    NotExportable,
    NotPortable,
    Target,
    read_target,
)
from ratchet.workflows.runs.plan import RunPlan, load_plan
from ratchet.workflows.runs.preparation import fix
from ratchet.workflows.runs.results import read_outputs, read_value

MARK = "export.json"
"""The file by which an export is known."""
_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
# Shorter ones are placeholders, which may stand anywhere.
_SHORTEST = 8
_FORMAT = 1
_NOTES = (
    "There is no sandbox: tools run as plain processes with the rights of their user, without bounds on memory.",
    "Nothing is written down: a run that is interrupted starts over, and no result is kept for the next one.",
    "How often a tool may be called in an hour is not counted.",
)


async def pinned_packages(sets: Iterable[tuple[str, ...]], runtime: Runtime) -> tuple[str, ...]:
    """One line for each package, sorted. Raises `Unfit` when no one environment can have all of them.

    A requirement that names its version is taken as it is. Any other means the versions in the environment that Ratchet
    made, or makes now, for the tool.
    """
    wanted: dict[str, str] = {}
    for requirements in dict.fromkeys(sets):
        for line in await _pinned(requirements, runtime):
            name = canonicalize_name(Requirement(line).name)
            if wanted.setdefault(name, line) != line:
                raise NotPortable(
                    f"needs {line}, and another one {wanted[name]}: one environment cannot have both"
                )
    return tuple(line for _, line in sorted(wanted.items()))


async def _pinned(requirements: tuple[str, ...], runtime: Runtime) -> tuple[str, ...]:
    if not requirements:
        return ()
    try:
        lines = read_requirements(requirements)
        if all(_is_exact(line) for line in lines):
            return lines
        made = await environment_for(lines, runtime.home, runtime.settings.tools)
    except ToolCallFailed as failed:
        raise NotPortable(f"has packages that cannot be pinned: {failed}") from failed
    places = [str(path) for path in made.directory.glob("lib/python*/site-packages")]
    found = {canonicalize_name(each.name): each.version for each in distributions(path=places)}
    return tuple(f"{name}=={version}" for name, version in sorted(found.items()))


def _is_exact(line: str) -> bool:
    specifiers = list(Requirement(line).specifier)
    return (
        len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version
    )


def check_folder(folder: Path, *, force: bool) -> None:
    """Raises `Conflict` when there is something that an export may not take the place of."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise Conflict(f"{folder} is not a folder", hint="name another place")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not force:
        raise Conflict(
            f"{folder} is not empty", hint="name another folder, or replace an export with --force"
        )
    # Other files there are not ours to delete.
    if not (folder / MARK).is_file():
        raise Conflict(f"{folder} is not empty and holds no export", hint="name another folder")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make `folder` hold exactly these files. An export that is there already is replaced."""
    folder = folder.absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        built = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise RatchetError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        for name, content in files.items():
            file = built / "new" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if folder.exists():
            folder.rename(built / "old")
        (built / "new").rename(folder)
    except OSError as error:
        if (built / "old").exists() and not folder.exists():
            (built / "old").rename(folder)
        raise RatchetError(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(built, ignore_errors=True)


def check_secrets(files: Mapping[str, bytes], environment: Mapping[str, str]) -> None:
    """Raises `Conflict` naming the file and the variable, never the value."""
    for variable, value in environment.items():
        if not variable.upper().endswith(_ENDINGS) or len(value.strip()) < _SHORTEST:
            continue
        for name, content in files.items():
            if value.strip().encode() in content:
                raise Conflict(
                    f"{name} would hold the value of the variable {variable}",
                    hint="take it out of the tool or the workflow, or record a run without it",
                )


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. `models` says which model answers for each name that the workflow uses."""

    folder: Path
    target: Target
    files: tuple[str, ...]
    models: Mapping[str, str]
    packages: tuple[str, ...]
    recorded: int
    """Answers that were taken from the recorded run."""
    notes: tuple[str, ...] = ()
    """What differs from a run inside Ratchet, for a person to read."""


async def export_workflow(
    spec: WorkflowSpec,
    target: Target,
    folder: Path,
    *,
    runtime: Runtime,
    run_id: RunId | None = None,
    models: Mapping[str, str] | None = None,
    base: Path | None = None,
    force: bool = False,
) -> Exported:
    """Write `spec` as a folder that runs without Ratchet.

    `models` says which model takes the place of which: `{"llama3": "openai/gpt-5-mini"}`; the name `*` stands for all
    that are not named. `run_id` is a completed run of this workflow: its answers stand in for a model in an `embedded`
    or `wasm` export, and are what the export's own test compares with. `base` is where relative paths of the spec
    start.

    Raises `NotExportable` with the reason for each step, `BadWorkflow` for one that could not run here either,
    `Conflict` when the folder is not empty and `force` is not given or the run is of no use, and `NotFound` for a run
    that does not exist. Nothing is written then.
    """
    read_target(target)
    check_table(target, models or {})
    check_folder(folder, force=force)
    subject = await asyncio.to_thread(_subject, runtime, spec, base, run_id)
    embedding = Embedding(target, subject.tools)
    portable = embedding.embed(subject.spec)
    reasons = list(embedding.reasons)
    places: dict[str, str] = {}
    if not target.alone:
        places = _places(embedding.asking, target, models or {}, runtime, reasons)
    elif subject.run is None:
        reasons += [
            f"step {each.step} asks a model; name a run whose answers are to be used"
            for each in embedding.asking
        ]
    packages = await _packages(embedding, runtime, reasons)
    if reasons:
        raise NotExportable(target, list(dict.fromkeys(reasons)))
    recording = None
    if subject.run is not None:
        recording = await record(runtime.ledger, subject.run, portable, subject.inputs, subject.values)
    notes = (*(WASM_NOTES if target is Target.WASM else _NOTES), *subject.notes)
    files = {
        **kit_files(),
        **embedding.files,
        **_own_files(portable, target, places, packages, recording, notes),
    }
    check_secrets(files, os.environ)
    await asyncio.to_thread(write_folder, folder, files)
    recorded = 0 if recording is None else len(recording.answers)
    return Exported(folder, target, tuple(sorted(files)), places, packages, recorded, notes)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is exported: a workflow with its tools, and the run of it, if there is one, with what its steps came to."""

    spec: WorkflowSpec
    tools: Mapping[tuple[str, str], Tool]
    run: Run | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _subject(runtime: Runtime, spec: WorkflowSpec, base: Path | None, run_id: RunId | None) -> _Subject:
    """The workflow as it would run now; with a run, its tools as they were then."""
    whole, fixed = fix(runtime, spec, folder=base)
    if run_id is None:
        return _Subject(whole, {key: each.tool for key, each in fixed.items()})
    run, plan, values = read_run(runtime.ledger, run_id)
    if write_spec(plan.spec) != write_spec(whole):
        raise Conflict(
            f"run {run_id} is of another workflow than {spec.workflow_id} as it is now",
            hint="run it again and take that run",
        )
    newer = {
        name
        for (_, name), each in fixed.items()
        if each.version_id not in {used.version_id for used in plan.tools.values()}
    }
    notes = tuple(
        f"The tool {name} has a newer version than the one of run {run_id}, which is here."
        for name in sorted(newer)
    )
    tools = {key: each.tool for key, each in plan.tools.items()}
    return _Subject(whole, tools, run, plan.inputs, values, notes)


def _places(
    asking: Sequence[ModelUse],
    target: Target,
    models: Mapping[str, str],
    runtime: Runtime,
    reasons: list[str],
) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in asking:
        try:
            found[each.name] = place_of(each.name, each.body, target, models, runtime.settings)
        except NoModel as why:
            reasons.append(f"step {each.step}: {why}")
    unused = set(models) - set(found) - {ALL}
    if unused and not reasons:
        raise Misuse(
            f"the workflow asks no model called {', '.join(sorted(unused))}",
            hint=f"it asks {', '.join(sorted(found)) or 'none'}",
        )
    return dict(sorted(found.items()))


async def _packages(embedding: Embedding, runtime: Runtime, reasons: list[str]) -> tuple[str, ...]:
    try:
        packages = await pinned_packages(embedding.requirements, runtime)
    except NotPortable as why:
        reasons.append(f"a tool {why}")
        return ()
    if packages and embedding.target.alone:
        reasons.append(f"{', '.join(packages)} would be needed, and there is only the standard library")
    return packages


def _own_files(
    portable: WorkflowSpec,
    target: Target,
    places: Mapping[str, str],
    packages: Sequence[str],
    recording: ExportRecording | None,
    notes: Sequence[str],
) -> dict[str, bytes]:
    about = {
        "format": _FORMAT,
        "target": target.value,
        "workflow": portable.workflow_id,
        "version": portable.version,
        "models": dict(places),
    }
    texts = {
        "workflow.json": write_text(portable),
        MARK: _json(about),
        "run_workflow.py": RUN_PROGRAM,
        "test_workflow.py": TEST_PROGRAM,
        "requirements.txt": requirements_text(packages),
        "README.md": readme(portable, target, places, packages, recording, notes),
    }
    if target is Target.WASM:
        texts |= {"package.json": package_json(portable), "run_workflow.mjs": WASM_PROGRAM}
    if recording is not None:
        texts["recorded.json"] = _json(write_recording(recording))
    return {name: text.encode() for name, text in texts.items()}


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def read_run(ledger: Ledger, run_id: RunId) -> tuple[Run, RunPlan, dict[str, Any]]:
    """A run, what it was to do, and the value of each step. Raises `NotFound`, and `Conflict` if it is not complete."""
    with ledger.read() as tx:
        run = get_run(tx, run_id)
        if run.kind != "workflow" or run.status is not RunStatus.COMPLETED:
            raise Conflict(
                f"run {run_id} is a {run.kind} that is {run.status}; only a completed run of a workflow is recorded",
                hint="`ratchet workflow list` shows the runs",
            )
        steps = [step for step in list_steps(tx, run_id) if step.status is StepStatus.COMPLETED]
        plan = load_plan(tx, run)
    return run, plan, {step.name: read_value(ledger.artifacts, step.result or {}) for step in steps}


async def record(
    ledger: Ledger, run: Run, portable: WorkflowSpec, inputs: Mapping[str, Any], values: Mapping[str, Any]
) -> ExportRecording:
    """What `portable`, which is the workflow of `run`, was given and answered there."""
    answers: dict[str, Any] = {}
    ended = await execute(_without_pauses(portable), inputs, _Remembering(values, answers))
    outputs = read_outputs(ledger.artifacts, run)
    if ended.status != "completed" or dict(ended.outputs) != outputs:
        raise Conflict(
            f"run {run.id} cannot be followed: {ended.error or 'its outputs are not what its steps came to'}",
            hint="run the workflow again and take that run",
        )
    return ExportRecording(
        run.id, run.simulated or run.used_recording, dict(inputs), outputs, dict(sorted(answers.items()))
    )


def _without_pauses(spec: WorkflowSpec) -> WorkflowSpec:
    """The workflow without pauses between rounds: what they waited for is known."""

    def step(each: WorkflowStep) -> WorkflowStep:
        inner = None if each.workflow_spec is None else _without_pauses(each.workflow_spec)
        repeat = None if each.repeat is None else replace(each.repeat, pause_seconds=0.0)
        return replace(each, workflow_spec=inner, repeat=repeat)

    return replace(spec, steps=tuple(map(step, spec.steps)))


class _Remembering:
    """Answers every call with its recorded result, and keeps what asked an outside service."""

    def __init__(self, values: Mapping[str, Any], answers: dict[str, Any]) -> None:
        self._values = values
        self._answers = answers

    async def call(self, call: StepCall) -> Result:
        if call.name not in self._values:
            raise StepFailed(f"nothing is known of {call.name}", final=True)
        value = self._values[call.name]
        tool = call.workflow.tool_definitions.get(call.tool or "")
        if kind_of(call, tool) in RECORDED:
            own, any_item = keys_of(call.name, call.values)
            self._answers[own] = value
            self._answers.setdefault(any_item, value)
        return Result(value)

    async def around(self, call: StepCall, inside: Inside) -> Result | StepError | None:
        end = await inside(call.values)
        if isinstance(end, StepError) and call.name in self._values:
            # Another tool stood in for it.
            return Result(self._values[call.name])
        return end

    async def sub_workflow(self, call: StepCall) -> WorkflowSpec:
        raise StepFailed(f"{call.step.workflow_path} was not part of the run", final=True)

    def fallback(self, call: StepCall) -> str | None:
        return None
