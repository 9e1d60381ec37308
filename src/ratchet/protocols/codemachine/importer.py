"""The import of a workspace, also as a job: a branch with prompts, then a protocol in the ledger; all or nothing.

The branch comes first. A process that dies in between leaves no more than that, and the next import of the same takes
it over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.engines.registry import names_address, names_recording
from ratchet.kernel import Conflict, JobId, LedgerError, RatchetError, RunId, RunStatus, StateChanged
from ratchet.ledger import Transaction, change_run
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import add_protocol_steps, find_protocol
from ratchet.projects.clone import Clone, open_clone
from ratchet.protocols.actions import create_protocol
from ratchet.protocols.codemachine.files import WorkspaceInvalid
from ratchet.protocols.codemachine.spec import SOURCE, prompt_files, to_protocol_spec
from ratchet.protocols.codemachine.workspace import CodeMachine, read_workspace
from ratchet.protocols.jobs import IMPORT
from ratchet.protocols.names import check_name
from ratchet.protocols.spec import (
    ProtocolSpec,
    StepSpec,
    files_of,
    prompt_version,
    record_spec,
    spec_hash,
    spec_problems,
    step_rows,
    write_protocol_spec,
)
from ratchet.protocols.stream import identity_of
from ratchet.runtime import JobContext, Runtime


@dataclass(frozen=True, slots=True)
class WantedImport:
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
class PreparedImport:
    """A workspace as it will be on the branch and in the ledger. Nothing is written yet."""

    wanted: WantedImport
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
    wanted = WantedImport(
        protocol_name, str(workspace_path), base_branch, description, workflow, track, chosen, inside
    )
    with runtime.ledger.read() as tx:
        project = get_project(tx, project_id)
        _require_free(tx, project, protocol_name)
    try:
        with open_clone(runtime, project, make=False) as clone:
            prepared = _prepare(clone, wanted)
            base = clone.fetch(wanted.base_branch or project.base_branch)
            commit, made = make_branch(clone, project, wanted.name, base, prepared.files)
            try:
                with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
                    return _record(tx, runtime, project, clone, prepared, base, commit)
            except BaseException:
                if made:
                    _take_back(runtime, project, clone, wanted, commit)
                raise
    except RatchetError as error:
        # The caller gets the error anyway, also when the ledger cannot take it.
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
        raise


def _prepare(clone: Clone, wanted: WantedImport) -> PreparedImport:
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
    named = (workspace.template.data, write_protocol_spec(spec))
    if wanted.inside and (names_recording(named) or names_address(named)):
        raise WorkspaceInvalid(
            "the workspace names a recording or an address as an engine, which only the server's own user may choose",
            hint="name another engine, or import it with the server's own token",
        )
    pages = {
        "plan.md": _plan(workspace, spec, wanted, prompts),
        "context.md": _context(workspace, spec),
        "log.md": f"# Log of {wanted.name}\n\n",
    }
    files = {f"{wanted.root}/{name}": text.encode() for name, text in (pages | prompts).items()}
    problems = spec_problems(spec, root=wanted.root, exists=files_of(files))
    if problems:
        raise WorkspaceInvalid(
            f"the workspace makes no spec that can be carried out: {'; '.join(problems[:5])}",
            hint="change the workspace where it says so",
        )
    return PreparedImport(wanted, workspace, spec, files)


def _record(
    tx: Transaction,
    runtime: Runtime,
    project: Project,
    clone: Clone,
    prepared: PreparedImport,
    base: str,
    commit: str,
) -> RunId:
    """This is the moment in which the protocol exists."""
    wanted, workspace, spec = prepared.wanted, prepared.workspace, prepared.spec
    tx.lock_keys(_key(project, wanted))
    if clone.repository.ref(_ref(wanted.name)) != commit:
        raise Conflict(f"the branch {wanted.name} was moved meanwhile", hint="import it again")
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


def _require_free(tx: Transaction, project: Project, name: str) -> None:
    if project.archived_at is not None:
        raise Conflict(f"project {project.id} is archived", hint="take it out of the archive first")
    if find_protocol(tx, project.id, name) is not None:
        raise Conflict(f"the project has a protocol {name!r} already", hint="take another name")


def _take_back(runtime: Runtime, project: Project, clone: Clone, wanted: WantedImport, commit: str) -> None:
    """Remove the branch again, unless a protocol has it after all: the answer to a commit may have been lost."""
    with contextlib.suppress(LedgerError, Conflict), runtime.ledger.write(actor="ratchet") as tx:
        # Held against `_record`, so that no process takes the branch over while it is removed.
        tx.lock_keys(_key(project, wanted))
        # One that has moved since is not ours any more.
        at_hand = clone.repository.ref(_ref(wanted.name)) == commit
        if at_hand and find_protocol(tx, project.id, wanted.name) is None:
            clone.repository.restore({_ref(wanted.name): (None, commit)})


def _key(project: Project, wanted: WantedImport) -> str:
    return f"import of {wanted.name} into project {project.id}"


def make_branch(
    clone: Clone, project: Project, name: str, base: str, files: Mapping[str, bytes]
) -> tuple[str, bool]:
    """The commit that the branch `name` is at now, and whether this call put it there.

    A branch that an import with the same content left, because its process died, is taken over. Raises `Conflict` for
    any other branch of that name, here or at the remote, and when the base has the protocol's folder already.
    """
    _require_room(clone, base, files)
    here = clone.repository.ref(_ref(name))
    if here is not None and not _holds(clone, here, files):
        raise Conflict(
            f"the branch {name} in {clone.path} exists already, at {here[:12]}",
            hint="rename or delete it, or import under another name",
        )
    if here is not None and clone.repository.log(here, limit=1)[0].parents == (base,):
        return here, False
    if clone.origin is not None and name in clone.remote_branches():
        raise Conflict(
            f"the branch {name} exists already at {clone.origin}",
            hint="delete it there if it is not needed, or import under another name",
        )
    commit = clone.repository.commit_files(
        files,
        parent=base,
        message=f"feat(protocol): add plan for {name} [protocol-{name.partition('-')[0]}/00]",
        author=identity_of(project),
    )
    try:
        clone.repository.advance(_ref(name), commit, expected=here)
    except StateChanged as changed:
        raise Conflict(
            f"the branch {name} in {clone.path} was made meanwhile",
            hint="another process imports the same; look at its result",
        ) from changed
    return commit, True


def _ref(name: str) -> str:
    return f"refs/heads/{name}"


def _require_room(clone: Clone, base: str, files: Mapping[str, bytes]) -> None:
    """What is imported is never mixed with what another plan said."""
    folders = {"/".join(path.split("/")[:2]) for path in files}
    for path in clone.repository.list_files(base):
        if "/".join(path.split("/")[:2]) in folders:
            raise Conflict(
                f"the base branch has {path} already",
                hint="import under another name, or remove it from the base",
            )


def _holds(clone: Clone, commit: str, files: Mapping[str, bytes]) -> bool:
    """Whether a commit adds exactly these files to the one before it."""
    repository = clone.repository
    parents = repository.log(commit, limit=1)[0].parents
    if len(parents) != 1 or {change.path for change in repository.changes(parents[0], commit)} != set(files):
        return False
    return all(repository.read_file(commit, path) == content for path, content in files.items())


def _plan(
    workspace: CodeMachine, spec: ProtocolSpec, wanted: WantedImport, prompts: Mapping[str, str]
) -> str:
    where = "its main agents, in their order"
    if workspace.workflow:
        named = f" ({_line(workspace.workflow.name)})" if workspace.workflow.name else ""
        where = f"its workflow {workspace.workflow.file}{named}"
    sections = [
        f"# {wanted.name}",
        wanted.description or "",
        f"Imported from a CodeMachine workspace: {where}. Every prompt is in `prompts/`, whole and as it was then.",
        "## Steps",
    ]
    heading = None
    for step in spec.steps:
        if step.metadata.get("heading") != heading:
            heading = step.metadata.get("heading")
            sections.append(f"### {heading}")
        sections.append(_step(step, prompts))
    return "\n\n".join(section for section in sections if section) + "\n"


def _step(step: StepSpec, prompts: Mapping[str, str]) -> str:
    agent = step.metadata["agent"]
    lines = [f"- **{step.called}**: {_line(agent.get('description') or agent.get('name') or step.id)}"]
    engine = " ".join(part for part in (step.engine_id, step.model) if part)
    if engine:
        lines.append(f"engine {engine}")
    lines.append(f"prompt `{step.prompt_ref}` ({prompt_version(prompts[step.prompt_ref].encode())})")
    lines.append(f"review {step.qa.policy}")
    if step.metadata.get("execute_once"):
        lines.append("not done again by loops")
    lines += map(_policy, step.policies)
    return "\n  - ".join(lines)


def _policy(policy: Mapping[str, Any]) -> str:
    if policy["behavior"] == "trigger":
        return f"trigger {policy['module_id']}: {policy.get('trigger_agent_id') or policy.get('target_agent_id')}"
    most = policy.get("max_iterations")
    skipped = policy.get("skip_steps")
    return (
        f"loop {policy['module_id']}: back by {policy.get('step_back', 1)}"
        + (f", {most} times at most" if most is not None else "")
        + (f", without {', '.join(map(str, skipped))}" if skipped else "")
    )


def _context(workspace: CodeMachine, spec: ProtocolSpec) -> str:
    facts: list[str] = []
    for label, value in (
        ("Project", workspace.template.text("projectName")),
        ("Track", workspace.choices.track),
        ("Conditions", ", ".join(sorted(workspace.choices.conditions))),
    ):
        if value:
            facts.append(f"- {label}: {_line(value)}")
    agents: Iterable[Mapping[str, Any]] = spec.metadata.get("sub_agents", ())
    facts += [
        f"- Sub agent {agent['id']}: {_line(agent.get('description') or '')}".rstrip(": ") for agent in agents
    ]
    return "# Context\n\n" + ("\n".join(facts) or "Nothing yet.") + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())[:500]


def enqueue_import(
    tx: Transaction, runtime: Runtime, project_id: int, *, protocol_name: str, **wanted: Any
) -> JobId:
    """Queue an import; `wanted` is as `import_workspace` takes it. Raises what is known to fail already."""
    project = get_project(tx, project_id)
    check_name(protocol_name)
    _require_free(tx, project, protocol_name)
    payload = {"project_id": project_id, "protocol_name": protocol_name, **wanted}
    job_id = runtime.enqueue(tx, IMPORT, payload, key=f"import:{project_id}:{protocol_name}")
    assert job_id is not None
    tx.event(
        "codemachine_import_enqueued",
        project_id=project.id,
        job_id=job_id,
        message=f"the import of {protocol_name} is queued",
        data={"protocol_name": protocol_name},
    )
    return job_id


async def import_in_job(job: JobContext) -> object:
    """Import what the job names. One that a dead process has finished is only remembered."""
    wanted = dict(job.payload)
    project_id, name = wanted.pop("project_id"), wanted.pop("protocol_name")
    done = await asyncio.to_thread(_imported, job, project_id, name)
    if done is None:
        done = await asyncio.to_thread(
            import_workspace, job.runtime, project_id, protocol_name=name, actor=job.process_id, **wanted
        )
    return {"protocol_run_id": done}


def _imported(job: JobContext, project_id: int, name: str) -> int | None:
    with job.ledger.read() as tx:
        found = find_protocol(tx, project_id, name)
    if found is None or found.created_at < job.job.created_at:
        return None
    return found.run_id if (found.template_source or {}).get("source") == SOURCE else None
