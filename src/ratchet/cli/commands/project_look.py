"""`ratchet project list`, `show`, `branches` and `questions`"""

from __future__ import annotations

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger, existing_runtime
from ratchet.cli.operation import CliCall, looking_like
from ratchet.cli.output import note, print_document, show_list, show_page
from ratchet.cli.params import project_argument
from ratchet.cli.progress import working
from ratchet.cli.protocol_pages import print_project, whole_project
from ratchet.cli.session import CliSession
from ratchet.cli.words import age, as_json, one_line
from ratchet.ledger.projects import get_project
from ratchet.ledger.questions import list_clarifications
from ratchet.operations import Listing, record
from ratchet.projects import operations
from ratchet.projects.operations import ClarificationAnswer
from ratchet.projects.stages import onboarding_view
from ratchet.protocols.lookup import project_named
from ratchet.runtime import Kinds

_MOST_QUESTIONS = 1000


@looking_like(operations.list_)
def list_(session: CliSession, call: CliCall, found: Listing[operations.ProjectAnswer]) -> None:
    with call.read() as tx:
        setups = {each.id: onboarding_view(tx, get_project(tx, each.id)).status for each in found.items}
    show_list(
        session,
        found.items,
        {
            "project": lambda each: each.id,
            "name": lambda each: each.name,
            "base": lambda each: each.base_branch,
            "onboarding": lambda each: setups[each.id],
            "stack": lambda each: ", ".join(each.facts.get("stack") or []) or None,
            "archived": lambda each: age(each.archived_at),
            "where": lambda each: each.git_url or each.local_path,
        },
        record=record,
        empty=operations.list_.empty,
    )


@looking_like(operations.show)
def show(session: CliSession, call: CliCall, found: operations.ProjectAnswer) -> None:
    with call.read() as tx:
        asked = list_clarifications(tx, project_id=found.id, open_only=True, limit=_MOST_QUESTIONS)
        document = whole_project(tx, get_project(tx, found.id)) | {"open_questions": len(asked)}
    show_page(session, document, print_project, document)


@command(
    examples=["ratchet project branches shop", "ratchet project branches shop --json | jq -r '.branches[]'"]
)
@project_argument
def branches(session: CliSession, project: str) -> None:
    """List the branches that the remote of a project has now."""
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.read() as tx:
            number = project_named(tx, project).id
        with working("asking the remote"):
            names = operations.branches(CliCall(session, runtime.ledger, runtime), number).branches
    if session.json:
        print_document({"branches": names})
    else:
        for name in names:
            print(one_line(name))
        if not names:
            note("The remote has no branches.")


@command(
    examples=["ratchet project questions shop", "ratchet project questions shop --all --json"],
    see=["project answer"],
)
@project_argument
@click.option("--all", "every", is_flag=True, help="Answered ones, too.")
def questions(session: CliSession, project: str, every: bool) -> None:
    """List what is asked about a project and its protocols.

    A question that blocks keeps what it applies to from being resumed until `ratchet project answer` answers it.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = project_named(tx, project)
        asked = list_clarifications(tx, project_id=found.id, open_only=not every, limit=_MOST_QUESTIONS)
    show_list(
        session,
        asked,
        {
            "question": lambda each: each.id,
            "key": lambda each: each.key,
            "about": lambda each: None if each.run_id is None else f"protocol {each.run_id}",
            "for": lambda each: each.applies_to,
            "blocks": lambda each: each.blocking and each.open,
            "answer": lambda each: as_json(each.answer),
            "recommended": lambda each: as_json(each.recommended),
            "options": lambda each: as_json(each.options),
            "asked": lambda each: each.question,
        },
        record=lambda each: record(ClarificationAnswer.of(each)),
        empty=f"Nothing is asked about {one_line(found.name)}.",
    )
