"""`ratchet project add`, `onboard` and `import-codemachine`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED, Foreground, existing_foreground, foreground
from ratchet.cli.output import confirm, note, show_page
from ratchet.cli.params import ci_files_option, detach_option, project_argument, read_secret_text
from ratchet.cli.protocol_pages import print_setup, whole_project
from ratchet.cli.protocol_work import leave_to_workers, work_on_protocol, work_on_setup
from ratchet.cli.session import CliSession
from ratchet.config import write_initial
from ratchet.kernel import Conflict, Misuse, RunStatus
from ratchet.ledger.events import last_id
from ratchet.ledger.projects import DEFAULT_BRANCH, Project, get_project, projects_at
from ratchet.ledger.protocols import get_protocol
from ratchet.ledger.runs import get_run
from ratchet.operations import record
from ratchet.projects.address import read_address
from ratchet.projects.local import base_branch, find_top, free_name
from ratchet.projects.operations import ProjectAnswer
from ratchet.projects.registration import PHASES, PROVIDERS, register_project, set_up_again
from ratchet.projects.secrets import NAMES
from ratchet.projects.stages import onboarding_view
from ratchet.protocols.actions import start_protocol
from ratchet.protocols.codemachine import import_workspace
from ratchet.protocols.lookup import project_named
from ratchet.protocols.names import next_name, slug_of
from ratchet.protocols.views import protocol_record

if TYPE_CHECKING:
    from ratchet.ledger import Transaction


@command(
    examples=[
        "ratchet project add",
        "ratchet project add https://github.com/acme/shop.git --secret git_token",
        "ratchet project add ../shop --name shop --base develop",
        "ratchet project add git@gitlab.com:acme/shop.git --ci-provider gitlab --model exec=gpt-5.1-codex",
    ],
    see=["project show", "project questions", "protocol new"],
)
@click.argument(
    "where",
    metavar="[ADDRESS|PATH]",
    required=False,
    help="A repository to clone, or one that is here; that of this directory if not given.",
)
@click.option("--name", metavar="NAME", help="What to call it; the name of the repository if not given.")
@click.option("--base", metavar="BRANCH", help="What changes start from; found out, else main.")
@click.option("--ci-provider", type=click.Choice(PROVIDERS), help="The forge; found out if not given.")
@click.option(
    "--model",
    "models",
    metavar="PHASE=MODEL",
    multiple=True,
    help=f"A model for one of: {', '.join(PHASES)}.",
)
@click.option(
    "--secret", "secrets", type=click.Choice(NAMES), multiple=True, help="Ask for this secret, too."
)
@ci_files_option
@detach_option
def add(
    session: CliSession,
    where: str | None,
    name: str | None,
    base: str | None,
    ci_provider: str | None,
    models: tuple[str, ...],
    secrets: tuple[str, ...],
    ci_files: bool,
    detach: bool,
) -> int | None:
    """Register a repository as a project, and set it up.

    An ADDRESS is cloned into the home; a PATH, by default the repository here, is worked on where it is. Setting up
    looks how the repository is set up and which checks it has, and asks what only people know. Nothing is written into
    your checkout, committed or pushed; with --ci-files, CI files are written where they are missing.

    Secrets are typed when asked for, or read from the standard input, a line each.

    Exits with 0 when the project is set up, 1 when that is blocked; `ratchet project onboard` resumes it.
    """
    given = _where(where, base)
    values = {key: value for key, value in given.items() if key != "called"}
    asked = {each: read_secret_text(each) for each in secrets}
    loaded = session.load()
    write_initial(loaded.home)
    with foreground(loaded) as here:
        with here.ledger.write(actor="cli") as tx:
            if name is None and "local_path" in given:
                _require_new(tx, given["local_path"])
            number = register_project(
                tx,
                here.runtime,
                name=name or free_name(tx, given["called"]),
                ci_provider=ci_provider,
                default_models=dict(_model(each) for each in models),
                secrets=asked,
                ci_files=ci_files,
                **values,
            )
            made = get_project(tx, number)
            document = record(ProjectAnswer.at(tx, number))
        if detach:
            told = f"Project {number}, {made.name}, is registered; its onboarding waits for a worker."
            leave_to_workers(session, here.ledger, document, told)
            return None
        return _carry(session, here, made)


@command(
    examples=["ratchet project onboard shop", "ratchet project onboard 3 --detach"],
    see=["project questions", "project answer"],
)
@project_argument
@ci_files_option
@detach_option
def onboard(session: CliSession, project: str, ci_files: bool, detach: bool) -> int | None:
    """Set a project up: resume where that is blocked, or look at the repository again.

    What was answered stays. Files that are there are never overwritten.

    Exits with 0 when the project is set up, 1 when that is blocked.
    """
    with existing_foreground(session) as here:
        with here.ledger.write(actor="cli") as tx:
            found = project_named(tx, project)
            run = None if found.setup_run_id is None else get_run(tx, found.setup_run_id)
            # One that is queued, or whose process was killed, needs nothing but somebody who does it.
            if run is None or run.status.stands:
                set_up_again(tx, here.runtime, found.id, ci_files=ci_files)
            found = get_project(tx, found.id)
            document = record(onboarding_view(tx, found))
        if detach:
            leave_to_workers(
                session, here.ledger, document, f"The onboarding of {found.name} waits for a worker."
            )
            return None
        return _carry(session, here, found)


@command(
    "import-codemachine",
    examples=[
        "ratchet project import-codemachine shop .",
        "ratchet project import-codemachine shop ../flows --workflow release --name 0012-release",
        "ratchet project import-codemachine shop . --track backend --condition has_ui --run",
    ],
    see=["protocol show"],
)
@project_argument
@click.argument("workspace", metavar="WORKSPACE", help="A CodeMachine folder.")
@click.option(
    "--name", metavar="NNNN-TASK", help="Its name and branch; else the next number and the folder's name."
)
@click.option("--base", metavar="BRANCH", help="What it starts from; the project's base branch if not given.")
@click.option("--description", metavar="TEXT", help="What it is for.")
@click.option("--workflow", metavar="NAME", help="Which of its workflows, if it has several.")
@click.option("--track", metavar="TRACK", help="Instead of selectedTrack in its template.json.")
@click.option(
    "--condition", "conditions", metavar="NAME", multiple=True, help="Instead of selectedConditions."
)
@click.option("--run", "running", is_flag=True, help="Carry it out, here and now.")
def import_codemachine(
    session: CliSession,
    /,
    project: str,
    workspace: str,
    name: str | None,
    base: str | None,
    conditions: tuple[str, ...],
    running: bool,
    **wanted: Any,
) -> int | None:
    """Make a protocol of a CodeMachine workspace.

    WORKSPACE is the folder that has `.codemachine`, that folder itself, or a package with `config/` at its top; a path
    that is not found here starts at the project's clone. Its scripts are read and never run. On any error there is no
    protocol and no branch.

    Exits with 0 when it is imported (with --run: completed), 1 when the workspace cannot be carried out.
    """
    with existing_foreground(session) as here:
        with here.ledger.write(actor="cli") as tx:
            found = project_named(tx, project)
            path = Path(workspace).resolve() if Path(workspace).exists() else Path(workspace)
            called = name or next_name(
                tx, found.id, slug_of(path.name if path.name != ".codemachine" else path.parent.name)
            )
        run_id = import_workspace(
            here.runtime,
            found.id,
            protocol_name=called,
            workspace_path=path,
            base_branch=base,
            conditions=conditions or None,
            actor="cli",
            **wanted,
        )
        with here.ledger.write(actor="cli") as tx:
            before = last_id(tx.connection)
            if running:
                start_protocol(tx, here.runtime, run_id)
            made = get_protocol(tx, run_id)
        if running:
            return work_on_protocol(session, here, run_id, made.name, after=before)
        told = (
            f"Protocol {run_id}, {made.name}, is imported; `ratchet protocol start {run_id}` carries it out."
        )
        confirm(session, protocol_record(made), told)
        return None


def _carry(session: CliSession, here: Foreground, project: Project) -> int:
    assert project.setup_run_id is not None
    ended = work_on_setup(session, here, project.setup_run_id, project.name)
    with here.ledger.read() as tx:
        now = get_project(tx, project.id)
        document = whole_project(tx, now)
    show_page(session, document, print_setup, document)
    if here.interrupted:
        note(f"`ratchet project onboard {project.id}` resumes it.")
        return INTERRUPTED
    return 0 if ended.status is RunStatus.COMPLETED else 1


def _require_new(tx: Transaction, path: str) -> None:
    """Raise `Conflict` if the repository there is a project already."""
    for each in projects_at(tx, path):
        raise Conflict(
            f"{path} is project {each.id}, {each.name}, already",
            hint=f"`ratchet project onboard {each.id}` looks at it again; --name NAME makes a second project of it",
        )


def _where(where: str | None, base: str | None) -> dict[str, Any]:
    """The address or the path of a repository, what to call it, and its base branch."""
    local = where is None or (
        not where.startswith(("file:", "http:", "https:", "ssh:")) and Path(where).exists()
    )
    if not local:
        assert where is not None
        if where.startswith(("/", ".", "~")):
            raise Misuse(
                f"there is no directory {where!r}",
                hint="name a clone that is on this machine, or the address of a repository",
            )
        address = read_address(where)
        return {"called": address.name, "git_url": where, "base_branch": base or DEFAULT_BRANCH}
    top = Path(where or ".").resolve()
    if where is None:
        top = find_top(top)
    elif _is_bare(top):
        return {
            "called": top.name.removesuffix(".git"),
            "git_url": str(top),
            "base_branch": base or DEFAULT_BRANCH,
        }
    elif not (top / ".git").exists():
        raise Misuse(
            f"{top} is not the top of a git repository",
            hint=f"run `git init {top}`, or name the clone itself",
        )
    return {"called": top.name, "local_path": str(top), "base_branch": base or base_branch(top)}


def _is_bare(path: Path) -> bool:
    """A bare repository has no files to work on; it is cloned like any other address."""
    return not (path / ".git").exists() and (path / "objects").is_dir() and (path / "refs").is_dir()


def _model(pair: str) -> tuple[str, str]:
    phase, equals, model = pair.partition("=")
    if not equals or not phase or not model:
        raise Misuse(
            f"{pair[:80]!r} names no model for a phase",
            hint=f"write PHASE=MODEL; phases are {', '.join(PHASES)}",
        )
    return phase, model
