"""The project that a command is about: the one that is named, else that of the repository here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.cli.output import note
from ratchet.cli.protocol_carrying import carry_setup
from ratchet.cli.words import lines, one_line
from ratchet.kernel import Conflict, RunStatus
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.runs import get_run
from ratchet.projects.local import base_branch, free_name, project_at
from ratchet.projects.registering import register_project
from ratchet.protocols.finding import project_named

if TYPE_CHECKING:
    from ratchet.cli.foreground import Foreground
    from ratchet.cli.session import Session


def chosen_project(session: Session, here: Foreground, wanted: str | Path, *, base: str | None) -> Project:
    """The project of that name, or of the repository at that path, which becomes one and is set up if it is none."""
    if isinstance(wanted, str):
        with here.ledger.read() as tx:
            return project_named(tx, wanted)
    top = wanted
    with here.ledger.read() as tx:
        found = project_at(tx, top)
    if found is not None:
        return found
    with here.ledger.write(actor="cli") as tx:
        name = free_name(tx, top.name)
        number = register_project(
            tx, here.runtime, name=name, local_path=str(top), base_branch=base or base_branch(top)
        )
    if not session.json:
        note(f"{top} is project {number} now: {name}.")
    return set_up(session, here, number)


def set_up(session: Session, here: Foreground, project_id: int) -> Project:
    """Carry the onboarding of a project that has one under way; the project as it is then.

    One that is blocked stays so: what needs it will say so.
    """
    with here.ledger.read() as tx:
        project = get_project(tx, project_id)
        run = None if project.setup_run_id is None else get_run(tx, project.setup_run_id)
    if run is None or run.status.stands:
        return project
    ended = carry_setup(session, here, run.id, project.name)
    if here.interrupted:
        raise KeyboardInterrupt
    if ended.status is not RunStatus.COMPLETED and not session.json:
        note(f"The onboarding of {one_line(project.name)} is {ended.status}: {lines(ended.reason or '')}")
    with here.ledger.read() as tx:
        return get_project(tx, project_id)


def require_set_up(here: Foreground, project: Project) -> None:
    """Raises `Conflict` for a project whose onboarding waits for somebody."""
    if project.setup_run_id is None:
        return
    with here.ledger.read() as tx:
        run = get_run(tx, project.setup_run_id)
    if run.status is not RunStatus.COMPLETED:
        raise Conflict(
            f"project {project.name!r} is not set up: its onboarding is {run.status}: {run.reason or 'in line'}",
            hint=f"`ratchet project show {project.id}` has the details; "
            f"`ratchet project onboard {project.id}` goes on with it",
        )
