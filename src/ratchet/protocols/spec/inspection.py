"""What an audit finds out about one protocol by looking at its repository."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ratchet.kernel import Misuse, RatchetError, RunStatus
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol
from ratchet.projects.clone import Clone, open_clone
from ratchet.protocols.spec.files import spec_from_files
from ratchet.protocols.spec.paths import Exists, files_of
from ratchet.protocols.spec.recording import root_of, spec_problems
from ratchet.protocols.spec.step_spec import ProtocolSpec
from ratchet.runtime import Runtime

_CODEMACHINE = ".codemachine/"


@dataclass(frozen=True, slots=True)
class Inspection:
    """`spec` is the one that was made up for a protocol that has none; `problems` are those of the one that it has.

    Without `exists` the branch was not to be seen, and paths were not checked.
    """

    problems: tuple[str, ...] = ()
    spec: ProtocolSpec | None = None
    exists: Exists | None = None
    workspace: str | None = None


def inspect(runtime: Runtime, project: Project, protocol: Protocol, *, backfill: bool) -> Inspection:
    """Look at the branch of a protocol, if it is on this machine. Nothing is cloned or fetched for it."""
    # Who plans at the moment writes the spec next, and knows more than the files tell.
    wanted = backfill and protocol.status is not RunStatus.PLANNING
    try:
        with open_clone(runtime, project, make=False) as clone:
            return _inspect(clone, protocol, backfill=wanted)
    except (RatchetError, OSError) as error:
        return _unseen(protocol, str(error), backfill=wanted)


def _inspect(clone: Clone, protocol: Protocol, *, backfill: bool) -> Inspection:
    place, root = str(clone.path), root_of(protocol)
    commit = clone.repository.ref(protocol.ref)
    if commit is None:
        return _unseen(protocol, f"there is no branch {protocol.name}", backfill=backfill, place=place)
    files = [path for path, entry in clone.repository.list_files(commit).items() if entry.is_file]
    exists = files_of(files)
    if protocol.spec is not None:
        return Inspection(_problems(protocol, exists), exists=exists, workspace=place)
    if not backfill:
        return Inspection(exists=exists, workspace=place)
    spec, problem = spec_from_files(_names_in(root, files)), f"there are no step files in {root}"
    if spec is None:
        try:
            spec = _from_codemachine(clone, commit, files)
        except Misuse as invalid:
            problem = f"none can be made: {invalid}"
    return Inspection(() if spec else (problem,), spec=spec, exists=exists, workspace=place)


def _unseen(protocol: Protocol, why: str, *, backfill: bool, place: str | None = None) -> Inspection:
    """A branch that cannot be seen says nothing against the spec that there is."""
    if protocol.spec is not None:
        return Inspection(_problems(protocol, None), workspace=place)
    return Inspection((f"none can be made: {why}",) if backfill else (), workspace=place)


def _problems(protocol: Protocol, exists: Exists | None) -> tuple[str, ...]:
    return tuple(spec_problems(protocol.spec, root=root_of(protocol), exists=exists))


def _names_in(root: str, files: Iterable[str]) -> list[str]:
    return [path.removeprefix(f"{root}/") for path in files if path.startswith(f"{root}/")]


def _from_codemachine(clone: Clone, commit: str, files: Iterable[str]) -> ProtocolSpec | None:
    """Raises `WorkspaceInvalid`, which is a `Misuse`."""
    if not any(path.startswith(_CODEMACHINE) for path in files):
        return None
    from ratchet.protocols.codemachine import read_workspace, to_protocol_spec

    with clone.repository.workspace(commit, name="audit") as workspace:
        return to_protocol_spec(read_workspace(workspace.path))
