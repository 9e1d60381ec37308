"""`ratchet project setup`, `checks`, `delete-branch`, `secrets`, `answer` and `archive`"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_runtime
from ratchet.cli.operation import CliCall, Text, user_name
from ratchet.cli.output import confirm, note, print_document, show_page
from ratchet.cli.params import project_argument, project_or_here_argument, read_secret_text
from ratchet.cli.progress import working
from ratchet.cli.protocol_work import note_workers
from ratchet.cli.words import as_json, lines, one_line
from ratchet.kernel import Misuse
from ratchet.ledger.projects import Project, get_project
from ratchet.operations import record
from ratchet.projects import operations
from ratchet.projects.clarifications import answer as give_answer
from ratchet.projects.clarifications import recommended_of
from ratchet.projects.environments import SetupFailed
from ratchet.projects.local import find_top, project_at
from ratchet.projects.operations import ClarificationAnswer
from ratchet.projects.registration import read_answer
from ratchet.projects.secrets import NAMES, put_secrets, secret_names
from ratchet.projects.setup import (
    base_of,
    environments_here,
    settle_checks,
    settle_setup,
    setup_view,
    use_found,
)
from ratchet.projects.stages import CheckCommand, SetupAnswer
from ratchet.protocols.lookup import project_named, question_named
from ratchet.runtime import Kinds

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.ledger import Transaction
    from ratchet.ledger.questions import Clarification
    from ratchet.runtime import Runtime


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
def delete_branch(session: CliSession, project: str, branch: str, yes: bool) -> int:
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
def secrets(session: CliSession, project: str, setting: str | None, removing: str | None) -> None:
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
@click.option(
    "--by", metavar="NAME", type=Text(1, 200), help="Who says so; the name of the user if not given."
)
def answer(
    session: CliSession, project: str, key: str | None, text: str | None, recommended: bool, by: str | None
) -> None:
    """Answer a question about a project or its protocols; what waited for it is resumed.

    An ANSWER is one of the options, JSON where a list or an object is asked for, else plain text.
    """
    if recommended == (text is not None) or (key is None and not recommended):
        raise Misuse(
            "it is not clear what the answer is",
            hint="give KEY and ANSWER"
            + (
                f", such as `ratchet project answer {project} {key} ANSWER`"
                if key and not recommended
                else ""
            )
            + ", or --recommended with or without a KEY",
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
            note_workers(session, runtime.ledger)


@command(examples=["ratchet project archive shop", "ratchet project archive shop --undo"])
@project_argument
@click.option("--undo", is_flag=True, help="Take it out of the archive again.")
def archive(session: CliSession, project: str, undo: bool) -> None:
    """Put a project away: nothing of it is lost, and it takes no new protocols."""
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.read() as tx:
            number = project_named(tx, project).id
        found = operations.change(CliCall(session, runtime.ledger, runtime), number, archived=not undo)
    done = "is out of the archive again" if undo else "is archived"
    confirm(session, record(found), f"Project {found.id}, {one_line(found.name)}, {done}.")


def _agreed(branch: str, project: Project) -> bool:
    if not sys.stdin.isatty():
        raise Misuse(f"deleting {branch} needs a yes, and there is no terminal to ask on", hint="add --yes")
    return click.confirm(f"Delete {branch} of {project.git_url or project.local_path}?", err=True)


def _recommended(asked: Clarification) -> Any:
    if asked.recommended is None:
        raise Misuse(f"nothing is recommended for {asked.key}", hint=f"the question is: {asked.question}")
    return asked.recommended


_EDIT = "# One command in a line, run in this order at the top of a fresh checkout, with the network.\n"


@command(
    examples=[
        "ratchet project setup",
        "ratchet project setup shop --show",
        "ratchet project setup shop --edit",
        'ratchet project setup shop --command "python3 -m pip install -e .[test]"',
        "ratchet project setup shop --rebuild",
    ],
    see=["project checks", "project show"],
)
@project_or_here_argument
@click.option("--show", is_flag=True, help="Only show it; nothing is run.")
@click.option("--edit", is_flag=True, help="Change the commands in $EDITOR.")
@click.option(
    "--command",
    "commands",
    metavar="COMMAND",
    multiple=True,
    help="Instead of what was found; may be repeated.",
)
@click.option("--found", is_flag=True, help="Go back to what was found in the repository.")
@click.option("--rebuild", is_flag=True, help="Make the environment again, although there is one.")
def setup(
    session: CliSession,
    project: str | None,
    show: bool,
    edit: bool,
    commands: tuple[str, ...],
    found: bool,
    rebuild: bool,
) -> None:
    """Show how a project is set up, and make its environment.

    The commands are found in the repository: its lock files and manifests, then its CI. They run once, in the sandbox
    with the network, into an environment below the home that is kept for as long as lock files and manifests stay the
    same. Checks and authors see it read-only and without the network. Your checkout is not touched.

    Exits with 0 when the environment is there or none is needed, 1 with the output of the command that failed.
    """
    if sum(map(bool, (edit, commands, found))) > 1:
        raise Misuse("--edit, --command and --found exclude each other", hint="give one of them")
    if show and rebuild:
        raise Misuse("--show runs nothing, and --rebuild does", hint="give one of them")
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.write(actor="cli") as tx:
            chosen = _project_or_here(tx, project)
            if edit:
                settle_setup(tx, chosen.id, _edited(runtime, chosen))
            elif commands:
                settle_setup(tx, chosen.id, commands)
            elif found:
                use_found(tx, chosen.id, "setup")
            chosen = get_project(tx, chosen.id)
        if not show:
            _make(session, runtime, chosen, rebuild=rebuild)
        document = setup_view(runtime, chosen)
    show_page(session, record(document), _print_setup, document)


@command(
    examples=[
        "ratchet project checks",
        'ratchet project checks shop --add "pytest=python3 -m pytest -q tests"',
        'ratchet project checks shop --add "types=npm run typecheck" --kind types',
        "ratchet project checks shop --remove ruff",
        "ratchet project checks shop --found",
    ],
    see=["project setup"],
)
@project_or_here_argument
@click.option(
    "--add",
    "adding",
    metavar="NAME=COMMAND",
    multiple=True,
    help="Add a check, or change the one of that name.",
)
@click.option("--remove", "removing", metavar="NAME", multiple=True, help="Leave this check out.")
@click.option("--kind", default=None, metavar="KIND", help="What the added ones are: test, lint, types, …")
@click.option("--found", is_flag=True, help="Go back to what was found in the repository.")
def checks(
    session: CliSession,
    project: str | None,
    adding: tuple[str, ...],
    removing: tuple[str, ...],
    kind: str | None,
    found: bool,
) -> None:
    """Show which checks decide about a change of a project, or change them.

    Each is a command that runs at the top of the repository, without the network, in the project's environment.
    """
    if found and (adding or removing):
        raise Misuse("--found excludes --add and --remove", hint="call it twice")
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.write(actor="cli") as tx:
            chosen = _project_or_here(tx, project)
            if found:
                use_found(tx, chosen.id, "checks")
            elif adding or removing:
                settle_checks(
                    tx, chosen.id, _changed(setup_view(runtime, chosen).checks, adding, removing, kind)
                )
            chosen = get_project(tx, chosen.id)
        document = setup_view(runtime, chosen)
    show_page(
        session,
        {"checks": record(document)["checks"], "settled": document.checks_settled},
        _print_checks,
        document,
    )


def _make(session: CliSession, runtime: Runtime, project: Project, *, rebuild: bool) -> None:
    def tell(mark: str, line: str) -> None:
        if not session.json:
            note(f"{mark} {one_line(line)}")

    told = {"tell": partial(tell, "$"), "hear": partial(tell, " ")}
    with environments_here(runtime, project, **told) as environments:
        base = base_of(environments, project)
        if rebuild:
            environments.forget(base)
        with working(f"setting up {project.name}"):
            try:
                asyncio.run(environments.of(base))
            except SetupFailed as failed:
                failed.hint = (failed.hint or "").replace("PROJECT", str(project.id)) or None
                raise


def _edited(runtime: Runtime, project: Project) -> list[str]:
    before = "".join(f"{line}\n" for line in setup_view(runtime, project).commands)
    text = click.edit(_EDIT + before)
    if text is None:
        raise Misuse("nothing was changed", hint="save the file, or give --command")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _changed(
    known: list[CheckCommand], adding: tuple[str, ...], removing: tuple[str, ...], kind: str | None
) -> list[dict[str, Any]]:
    names = [each.name for each in known]
    for name in removing:
        if name not in names:
            raise Misuse(f"there is no check {name!r}", hint=f"there are: {', '.join(names) or 'none'}")
    kept = {each.name: {"name": each.name, "command": each.command} for each in known}
    for name in removing:
        del kept[name]
    for pair in adding:
        name, equals, line = pair.partition("=")
        if not equals:
            raise Misuse(f"{pair[:80]!r} is not NAME=COMMAND", hint='such as "pytest=python3 -m pytest -q"')
        kept[name.strip()] = {
            "name": name.strip(),
            "command": line,
            **({} if kind is None else {"kind": kind}),
        }
    return list(kept.values())


def _print_setup(found: SetupAnswer) -> None:
    stack = ", ".join(found.stack) or "no known stack"
    print(f"{stack}; the set-up is {'as you set it' if found.settled else 'as found in the repository'}:")
    for line in found.commands or ["(no commands)"]:
        print(f"  {one_line(line)}")
    made = found.environment
    if made is not None:
        python = f", Python {made.python}" if made.python else ""
        print(f"The environment is made ({made.seconds:g} s{python}): {made.directory}")
        for each in made.notes:
            note(f"note: {one_line(each)}")
    elif found.state == "not needed":
        print("It needs no environment: the checks run with the system's programs.")
    elif found.state == "not made yet":
        print("The environment is not made yet; that happens when it is first needed, or now without --show.")
    else:
        print(f"Whether there is an environment is not known: {lines(found.problem or '')}")
    for each in found.notes:
        note(f"note: {one_line(each)}")
    _print_checks(found)


def _print_checks(found: SetupAnswer) -> None:
    print(f"Checks, {'as you set them' if found.checks_settled else 'as found in the repository'}:")
    for each in found.checks:
        print(f"  {one_line(each.name)} ({each.kind}): {one_line(each.command)}")
    if not found.checks:
        print("  (none)")


def _project_or_here(tx: Transaction, wanted: str | None) -> Project:
    """The project that is named, else that of the repository around the current directory.

    Raises `NotFound`, and `Misuse` outside of a repository or in one that is no project.
    """
    if wanted is not None:
        return project_named(tx, wanted)
    top = find_top(Path.cwd())
    found = project_at(tx, top)
    if found is None:
        raise Misuse(
            f"{top} is not a project yet", hint="add it with `ratchet project add`, or name a project"
        )
    return found
