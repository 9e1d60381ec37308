"""Where workflows come from: a file, or a name under which one was saved."""

from __future__ import annotations

from pathlib import Path

from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.kernel import Misuse
from ratchet.ledger.workflows import get_workflow
from ratchet.runtime import Runtime
from ratchet.workflows.building.files import read_file

_ENDINGS = (".json", ".yaml", ".yml")


def load_workflow(runtime: Runtime, named: str) -> tuple[WorkflowSpec, Path | None]:
    """The workflow in a file, or the one saved under a name, and the folder in which its paths start."""
    if names_file(named):
        return read_file(named), Path(named).resolve().parent
    return load_saved(runtime, named), None


def load_saved(runtime: Runtime, name: str) -> WorkflowSpec:
    """The workflow that was saved under a name. Raises `NotFound`."""
    with runtime.ledger.read() as tx:
        return read_spec(get_workflow(tx, name).spec)


def names_file(named: str) -> bool:
    """Whether a person who writes this means a file."""
    return named.endswith(_ENDINGS) or Path(named).is_file()


def load_inner(runtime: Runtime, named: str, folder: Path | None) -> tuple[WorkflowSpec, Path | None]:
    """A workflow that another one names: a file beside it or below, or a saved one."""
    if not named.endswith(_ENDINGS):
        # Never a file: whoever may send a workflow may not have files of this machine read by it.
        return load_saved(runtime, named), None
    if folder is None:
        raise Misuse(
            f"{named} lies beside the workflow, which has no folder here", hint="save it and name it"
        )
    path = (folder / named).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise Misuse(f"{named} lies outside of the workflow's folder")
    return read_file(path), path.parent
