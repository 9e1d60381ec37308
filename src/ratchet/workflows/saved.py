"""Workflows by file or by the name under which they are saved: loading, checking and saving them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_leniently, read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Misuse, RatchetError, with_hint
from ratchet.ledger import Transaction
from ratchet.ledger.workflows import SavedWorkflow, get_workflow, save_workflow
from ratchet.runtime import Runtime
from ratchet.tools.registry import open_toolbox
from ratchet.workflows.files import BadWorkflow, UnreadableWorkflow, read_data, read_file

if TYPE_CHECKING:
    from ratchet.config import Settings
    from ratchet.flowkit.spec import WorkflowSpec
    from ratchet.ledger import Ledger

_IN_PYTHON = re.compile(r"[\w./-]+:[A-Za-z_]\w*")
_ENDINGS = (".json", ".yaml", ".yml")
UNWRITTEN = "step {}: its tool has not been written yet; `ratchet workflow fill FILE` has it written"


class WorkflowPlace(Protocol):
    """Where workflows and their tools are looked for; a runtime is one."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def home(self) -> Path: ...


@dataclass(frozen=True, slots=True)
class CheckedPlace:
    ledger: Ledger
    settings: Settings
    home: Path


def check_file(path: Path, ledger: Ledger | None, settings: Settings) -> list[str]:
    """One sentence for each problem of the workflow in a file. Without a ledger nothing is known of tools."""
    try:
        data = read_data(path)
    except UnreadableWorkflow as bad:
        return bad.problems
    folder = path.resolve().parent
    if ledger is not None:
        return check_runnable(CheckedPlace(ledger, settings, ledger.artifacts.root.parent), data, folder)
    return check_data(data, None) or unwritten(read_spec(data))


def check_python(named: str, ledger: Ledger | None, settings: Settings) -> list[str]:
    """The same for a workflow that is written in Python."""
    try:
        data = write_spec(python_workflow(named))
    except BadWorkflow as bad:
        return bad.problems
    if ledger is None:
        return []
    return check_runnable(CheckedPlace(ledger, settings, ledger.artifacts.root.parent), data)


def check_runnable(place: WorkflowPlace, data: Any, folder: Path | None = None) -> list[str]:
    """Everything for which a run would refuse the workflow, whatever its inputs. Nothing is recorded."""
    problems = check_data(data, known_tools(place.ledger, place.settings, folder))
    if problems:
        return problems
    # Loaded here: it knows what every kind of tool is called with.
    from ratchet.workflows.runs.tools import find_tools

    try:
        find_tools(place, read_spec(data), folder=folder)
    except RatchetError as error:
        return list(getattr(error, "problems", None) or [with_hint(error)])
    return []


def unwritten(spec: WorkflowSpec) -> list[str]:
    """The steps whose tools are yet to be written."""
    found = [
        UNWRITTEN.format(step.step_id) for step in spec.steps if step.generate_tool and not step.tool_name
    ]
    inner = [step.workflow_spec for step in spec.steps if step.workflow_spec is not None]
    return [*found, *(problem for each in inner for problem in unwritten(each))]


def check_data(data: Any, tools: Sequence[str] | None) -> list[str]:
    """The same for a workflow as JSON. `tools` are those that can be called, if they are known."""
    try:
        partial = read_leniently(data)
    except SpecError as error:
        return error.problems
    # What could not be read leaves gaps, and a gap may be reported again.
    return list(dict.fromkeys([*partial.problems, *check_spec(partial.spec, known_tools=tools)]))


def require_spec(data: Any) -> WorkflowSpec:
    """The workflow that JSON says. Raises `BadWorkflow` with everything that is wrong with it as it is written."""
    problems = check_data(data, None)
    if problems:
        from ratchet.workflows.files import BadWorkflow

        raise BadWorkflow(problems)
    return read_spec(data)


def known_tools(ledger: Ledger, settings: Settings, folder: Path | None = None) -> list[str]:
    """The tools that a workflow can call, with its own ones, which lie in `folder`."""
    folders = () if folder is None else (folder,)
    opened = open_toolbox(ledger, settings, ledger.artifacts.root.parent, folders=folders)
    with contextlib.closing(opened) as toolbox:
        return [version.name for version in toolbox.list()]


def keep_workflow(
    tx: Transaction, spec: WorkflowSpec, *, origin: str, name: str | None = None
) -> SavedWorkflow:
    """Save a workflow, under another `name` if one is given. Raises `BadWorkflow` for one that could not run.

    A saved workflow has no folder, so nothing in it may lead to a file.
    """
    renamed = spec if name is None else replace(spec, workflow_id=name)
    problems = [*check_spec(renamed), *_files(renamed)]
    if problems:
        raise BadWorkflow(problems)
    return save_workflow(tx, write_spec(renamed), origin=origin)


def _files(spec: WorkflowSpec) -> Iterator[str]:
    for step in spec.steps:
        if step.workflow_spec is not None:
            yield from _files(step.workflow_spec)
        if step.tool_path is not None:
            yield (
                f"step {step.step_id}: {step.tool_path} is a file beside the workflow, which a saved one does not "
                "have; put its code under `tools`"
            )
        if (step.workflow_path or "").endswith((".json", ".yaml", ".yml")):
            yield (
                f"step {step.step_id}: {step.workflow_path} is a file beside the workflow, which a saved one does "
                "not have; save it, and name it"
            )


def load_workflow(runtime: Runtime, named: str) -> tuple[WorkflowSpec, Path | None]:
    """The workflow in a file or a module of Python, or the one saved under a name, and the folder in which its paths
    start."""
    if names_python(named):
        return python_workflow(named), None
    if names_file(named):
        return read_file(named), Path(named).resolve().parent
    return load_saved(runtime, named), None


def load_saved(runtime: WorkflowPlace, name: str) -> WorkflowSpec:
    """The workflow that was saved under a name. Raises `NotFound`."""
    with runtime.ledger.read() as tx:
        return read_spec(get_workflow(tx, name).spec)


def names_file(named: str) -> bool:
    """Whether a person who writes this means a file."""
    return named.endswith(_ENDINGS) or Path(named).is_file()


def names_python(named: str) -> bool:
    """Whether a person who writes this means a workflow that is written in Python: `module:name`, `file.py:name`."""
    if named.rstrip(":").endswith(".py"):
        raise Misuse(
            f"{named} does not say which workflow of the file",
            hint=f"write its name after a colon: `{named.rstrip(':')}:NAME`",
        )
    return _IN_PYTHON.fullmatch(named) is not None


def python_workflow(named: str) -> WorkflowSpec:
    """Its module is imported: only what a person has typed may be given here."""
    from ratchet.workflows.python import load_python

    return load_python(named).spec


def load_inner(runtime: WorkflowPlace, named: str, folder: Path | None) -> tuple[WorkflowSpec, Path | None]:
    """A workflow that another one names: a file beside it or below, or a saved one."""
    if not named.endswith(_ENDINGS):
        # Never a file: a caller who may send a workflow may not have files of this machine read by it.
        return load_saved(runtime, named), None
    if folder is None:
        raise Misuse(
            f"{named} lies beside the workflow, which has no folder here", hint="save it and name it"
        )
    path = (folder / named).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise Misuse(f"{named} lies outside of the workflow's folder")
    return read_file(path), path.parent
