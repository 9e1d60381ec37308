"""`ratchet project delete-branch`, `secrets`, `answer` and `archive`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_runtime
from ratchet.cli.operation import CliCall, user_name
from ratchet.cli.output import confirm, note, print_document
from ratchet.cli.params import read_secret_text
from ratchet.cli.protocol_carrying import tell_who_works
from ratchet.cli.protocol_choice import by_option, project_argument
from ratchet.cli.words import as_json, one_line
from ratchet.kernel import Misuse
from ratchet.ledger.projects import Project
from ratchet.operations import record
from ratchet.projects import operations
from ratchet.projects.clarifications import answer as give_answer
from ratchet.projects.clarifications import recommended_of
from ratchet.projects.operations import ClarificationAnswer
from ratchet.projects.registration import read_answer
from ratchet.projects.secrets import NAMES, put_secrets, secret_names
from ratchet.protocols.lookup import project_named, question_named
from ratchet.runtime import Kinds

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger.questions import Clarification


@command(
    "delete-branch",
    examples=[
        "ratchet project delete-branch shop 0003-old-idea",
        "ratchet project delete-branch shop feature/old --yes",
    ],
    see=["project branches"],
)
@project_argument
@click.argument("branch", metavar="BRANCH", help="Its name, without `origin/`.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete_branch(session: Session, project: str, branch: str, yes: bool) -> int:
    """Delete a branch of the remote of a project.

    Never the base branch, nor that of a protocol that has not ended. It cannot be undone, and is on record.
    """
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.read() as tx:
            found = project_named(tx, project)
        if not yes and not _agreed(branch, found):
            note(f"{branch} stays.")
            return 1
        deleted = operations.delete_branch(CliCall(session, runtime.ledger, runtime), found.id, branch, True)
    confirm(session, record(deleted), f"{branch} of {found.name} is deleted.")
    return 0


@command(
    examples=[
        "ratchet project secrets shop",
        "ratchet project secrets shop --set git_token",
        'printf %s "$TOKEN" | ratchet project secrets shop --set forge_token',
        "ratchet project secrets shop --remove api_token",
    ]
)
@project_argument
@click.option(
    "--set", "setting", type=click.Choice(NAMES), help="Give it this secret, typed or by the standard input."
)
@click.option("--remove", "removing", type=click.Choice(NAMES), help="Forget this secret.")
@click.pass_obj
def secrets(session: Session, project: str, setting: str | None, removing: str | None) -> None:
    """Show which secrets a project has, set one, or remove one.

    They are kept encrypted, used by Ratchet alone, and never shown again. git_token lets git fetch and push over https,
    forge_token opens pull requests, webhook_secret is what webhooks are signed with, api_token is what requests about
    this project must bring.
    """
    if setting is not None and removing is not None:
        raise Misuse("--set and --remove exclude each other", hint="call it twice")
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.read() as tx:
            found = project_named(tx, project)
        changes: dict[str, str | None] = {} if removing is None else {removing: None}
        if setting is not None:
            changes[setting] = read_secret_text(setting)
        with runtime.ledger.write(actor="cli") as tx:
            put_secrets(tx, runtime, found.id, changes)
            names = secret_names(tx, found.id)
    if session.json:
        print_document({"secret_names": names})
        return
    for name in names:
        print(name)
    if not names:
        note(f"{one_line(found.name)} has no secrets; there can be: {', '.join(NAMES)}.")


@command(
    examples=[
        "ratchet project answer shop ci_provider github",
        'ratchet project answer shop required_checks \'["lint", "test"]\'',
        'ratchet project answer shop 17 "Keep the old endpoint as well."',
        "ratchet project answer shop --recommended",
    ],
    see=["project questions"],
)
@project_argument
@click.argument(
    "key",
    metavar="[KEY|NUMBER]",
    required=False,
    help="Which question, as `ratchet project questions` lists it.",
)
@click.argument("text", metavar="[ANSWER]", required=False, help="What to answer.")
@click.option(
    "--recommended",
    is_flag=True,
    help="Answer as recommended: this question, or all open ones if none is named.",
)
@by_option
@click.pass_obj
def answer(
    session: Session, project: str, key: str | None, text: str | None, recommended: bool, by: str | None
) -> None:
    """Answer a question about a project or its protocols; what waited for it is resumed.

    An ANSWER is one of the options, JSON where a list or an object is asked for, else plain text.
    """
    if recommended == (text is not None) or (key is None and not recommended):
        raise Misuse(
            "it is not clear what the answer is",
            hint="give KEY and ANSWER, or --recommended with or without a KEY",
        )
    with existing_runtime(session) as runtime:
        with runtime.ledger.write(actor="cli") as tx:
            found = project_named(tx, project)
            asked = recommended_of(tx, found.id) if key is None else [question_named(tx, found, key)]
            said = [
                give_answer(
                    tx,
                    runtime,
                    each.id,
                    _recommended(each) if text is None else read_answer(each, text),
                    by=by or user_name(),
                )
                for each in asked
            ]
        if session.json:
            print_document([record(ClarificationAnswer.of(each)) for each in said])
            return
        for each in said:
            print(f"{one_line(each.key)}: {as_json(each.answer)}")
        if not said:
            note(f"Nothing that has a recommended answer is asked about {one_line(found.name)}.")
        elif any(each.blocking for each in said):
            tell_who_works(session, runtime.ledger)


@command(examples=["ratchet project archive shop", "ratchet project archive shop --undo"])
@project_argument
@click.option("--undo", is_flag=True, help="Take it out of the archive again.")
@click.pass_obj
def archive(session: Session, project: str, undo: bool) -> None:
    """Put a project away: nothing of it is lost, and it takes no new protocols."""
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.read() as tx:
            number = project_named(tx, project).id
        found = operations.change(CliCall(session, runtime.ledger, runtime), number, archived=not undo)
    done = "is out of the archive again" if undo else "is archived"
    confirm(session, record(found), f"Project {found.id}, {one_line(found.name)}, {done}.")


def _agreed(branch: str, project: Project) -> bool:
    if not sys.stdin.isatty():
        raise Misuse(f"deleting {branch} needs a yes, and nobody can be asked", hint="add --yes")
    return click.confirm(f"Delete {branch} of {project.git_url or project.local_path}?", err=True)


def _recommended(asked: Clarification) -> Any:
    if asked.recommended is None:
        raise Misuse(f"nothing is recommended for {asked.key}", hint=f"the question is: {asked.question}")
    return asked.recommended
