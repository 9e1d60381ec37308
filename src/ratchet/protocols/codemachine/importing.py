"""Importing a workspace: a branch with its prompts, then the protocol in the ledger; both, or nothing.

The branch comes first. A process that dies in between leaves no more than that, and the next import of the same takes
it over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import Conflict, LedgerError, RatchetError, RunId, RunStatus
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocol_steps import add_protocol_steps
from ratchet.ledger.protocols import find_protocol
from ratchet.projects.clone import Clone, open_clone
from ratchet.protocols.actions import create_protocol
from ratchet.protocols.codemachine.branching import is_at, make_branch, remove_branch
from ratchet.protocols.codemachine.errors import WorkspaceInvalid
from ratchet.protocols.codemachine.pages import pages_of
from ratchet.protocols.codemachine.specs import SOURCE, prompt_files, to_protocol_spec
from ratchet.protocols.codemachine.workspace import CodeMachine, read_workspace
from ratchet.protocols.naming import check_name
from ratchet.protocols.spec import ProtocolSpec, files_of, record_spec, spec_hash, spec_problems, step_rows
from ratchet.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be imported, from where, and as what."""

    name: str
    path: str
    base_branch: str | None
    description: str | None
    workflow: str | None
    track: str | None
    conditions: tuple[str, ...] | None
    inside: bool

    @property
    def root(self) -> str:
        return f".protocols/{self.name}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A workspace as it will be on the branch and in the ledger. Nothing is written yet."""

    workspace: CodeMachine
    spec: ProtocolSpec
    files: dict[str, bytes]


def import_workspace(
    runtime: Runtime,
    project_id: int,
    *,
    protocol_name: str,
    workspace_path: str | Path,
    base_branch: str | None = None,
    description: str | None = None,
    workflow: str | None = None,
    track: str | None = None,
    conditions: Iterable[str] | None = None,
    inside: bool = False,
    actor: str,
    request_id: str | None = None,
) -> RunId:
    """Make a planned protocol of a CodeMachine workspace. It asks the remote, so it may take its time.

    A relative path starts at the project's clone; `inside` refuses workspaces elsewhere. `workflow`, `track` and
    `conditions` stand in for what `template.json` says. Raises `WorkspaceInvalid` for a workspace that cannot be
    carried out, `CloneMissing` when the project is not set up on this machine, `Conflict` when the name is taken.
    On any error there is no protocol, and no branch that was not there before.
    """
    check_name(protocol_name)
    chosen = None if conditions is None else tuple(conditions)
    wanted = Wanted(
        protocol_name, str(workspace_path), base_branch, description, workflow, track, chosen, inside
    )
    with runtime.ledger.read() as tx:
        project = get_project(tx, project_id)
        _require_free(tx, project, wanted)
    try:
        with open_clone(runtime, project, make=False) as clone:
            return _import(runtime, project, clone, wanted, actor, request_id)
    except RatchetError as error:
        _tell_failed(runtime, project, wanted, error, actor, request_id)
        raise


def _import(
    runtime: Runtime, project: Project, clone: Clone, wanted: Wanted, actor: str, request_id: str | None
) -> RunId:
    prepared = _prepare(clone, wanted)
    base = clone.fetch(wanted.base_branch or project.base_branch)
    commit, made = make_branch(clone, project, wanted.name, base, prepared.files)
    try:
        with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
            return _record(tx, runtime, project, clone, wanted, prepared, base, commit)
    except BaseException:
        if made:
            _take_back(runtime, project, clone, wanted, commit)
        raise


def _prepare(clone: Clone, wanted: Wanted) -> Prepared:
    path = clone.path / wanted.path
    if wanted.inside and not path.resolve().is_relative_to(clone.path.resolve()):
        raise WorkspaceInvalid(
            f"{wanted.path} is not in the repository of the project",
            hint="give a path in the repository, or import it with the server's own token",
        )
    workspace = read_workspace(
        path, workflow=wanted.workflow, track=wanted.track, conditions=wanted.conditions
    )
    spec, prompts = to_protocol_spec(workspace), prompt_files(workspace)
    pages = pages_of(workspace, spec, wanted.name, wanted.description, prompts)
    files = {f"{wanted.root}/{name}": text.encode() for name, text in (pages | prompts).items()}
    problems = spec_problems(spec, root=wanted.root, exists=files_of(files))
    if problems:
        raise WorkspaceInvalid(
            f"the workspace makes no spec that can be carried out: {'; '.join(problems[:5])}",
            hint="change the workspace where it says so",
        )
    return Prepared(workspace, spec, files)


def _record(
    tx: Transaction,
    runtime: Runtime,
    project: Project,
    clone: Clone,
    wanted: Wanted,
    prepared: Prepared,
    base: str,
    commit: str,
) -> RunId:
    """This is the moment in which the protocol exists."""
    tx.lock_keys(_key(project, wanted))
    if not is_at(clone, wanted.name, commit):
        raise Conflict(f"the branch {wanted.name} was moved meanwhile", hint="import it again")
    workspace, spec = prepared.workspace, prepared.spec
    file = workspace.workflow.file if workspace.workflow else None
    run_id = create_protocol(
        tx,
        runtime,
        project.id,
        wanted.name,
        base_branch=wanted.base_branch,
        description=wanted.description,
        base_commit=base,
        template_config={"template": dict(workspace.template.data)},
        template_source={"source": SOURCE, "workspace": str(workspace.files.root), "workflow": file},
    )
    change_run(tx, run_id, RunStatus.PLANNING, expected=(RunStatus.PENDING,), reason="imported")
    record_spec(tx, run_id, spec, exists=files_of(prepared.files))
    rows = step_rows(spec)
    add_protocol_steps(tx, run_id, rows)
    change_run(tx, run_id, RunStatus.PLANNED, expected=(RunStatus.PLANNING,), reason="imported")
    tx.event(
        "codemachine_imported",
        run_id=run_id,
        project_id=project.id,
        message=f"{len(rows)} steps, committed as {commit[:12]}",
        data={
            "steps": [row["name"] for row in rows],
            "workflow": file,
            "commit": commit,
            "base_commit": base,
            "spec_hash": spec_hash(spec),
        },
    )
    return run_id


def _require_free(tx: Transaction, project: Project, wanted: Wanted) -> None:
    if project.archived_at is not None:
        raise Conflict(f"project {project.id} is archived", hint="take it out of the archive first")
    if find_protocol(tx, project.id, wanted.name) is not None:
        raise Conflict(f"the project has a protocol {wanted.name!r} already", hint="take another name")


def _take_back(runtime: Runtime, project: Project, clone: Clone, wanted: Wanted, commit: str) -> None:
    """Remove the branch again, unless a protocol has it after all: the answer to a commit may have been lost."""
    with contextlib.suppress(LedgerError, Conflict), runtime.ledger.write(actor="ratchet") as tx:
        # Held against `_record`, so that nobody takes the branch over while it is removed.
        tx.lock_keys(_key(project, wanted))
        if find_protocol(tx, project.id, wanted.name) is None:
            remove_branch(clone, wanted.name, commit)


def _tell_failed(
    runtime: Runtime,
    project: Project,
    wanted: Wanted,
    error: RatchetError,
    actor: str,
    request_id: str | None,
) -> None:
    # What went wrong is told to the caller anyway, also when the ledger cannot take it.
    with (
        contextlib.suppress(LedgerError),
        runtime.ledger.write(actor=actor, request_id=request_id) as tx,
    ):
        tx.event(
            "codemachine_import_failed",
            project_id=project.id,
            message=str(error)[:1000],
            data={"protocol_name": wanted.name, "workspace": wanted.path[:500]},
        )


def _key(project: Project, wanted: Wanted) -> str:
    return f"import of {wanted.name} into project {project.id}"
