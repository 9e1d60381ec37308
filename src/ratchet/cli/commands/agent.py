"""`ratchet agent show`, `versions`, `diff`, `tools`, `call`, `logs`, `state`, `export`; operations make the others."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.agents import logs as log_files
from ratchet.agents import operations as of_agents
from ratchet.agents.contract import CALL_SECONDS, Role
from ratchet.agents.views import graph
from ratchet.cli.command import command
from ratchet.cli.inputs import with_file_texts
from ratchet.cli.operation import CliCall, calling, looking_like, show_answer
from ratchet.cli.output import (
    confirm,
    note,
    print_document,
    print_foreign,
    print_line,
    show_list,
    show_one,
    show_page,
)
from ratchet.cli.params import COUNT, ID, Amount, Number, agent_argument
from ratchet.cli.progress import working
from ratchet.cli.words import age, one_line
from ratchet.kernel import Misuse
from ratchet.ledger.agents import VersionStatus
from ratchet.operations import Listing, Window, record

if TYPE_CHECKING:
    from ratchet.agents.contract import ToolShape
    from ratchet.agents.operations import ServedAgent
    from ratchet.agents.views import AgentRunAnswer, ListedVersion, VersionComparison, WaitingChange
    from ratchet.cli.session import CliSession

_SHORT = 12
_LOOK_SECONDS = 0.25
_version_option = click.option(
    "--version", metavar="VERSION", help="Of this version; of the current one if not given."
)
_tuner_option = click.option(
    "--tuner", is_flag=True, help="Of the Tuner, which takes feedback, not the Runner."
)


@looking_like(of_agents.show)
def show(session: CliSession, _call: CliCall, found: ServedAgent) -> None:
    show_one(session, record(found), _fields(found))
    if found.runs and not session.json:
        print()
        _print_runs(found.runs)


def _fields(agent: ServedAgent) -> dict[str, object]:
    current, address = agent.current, agent.address
    return {
        "agent": agent.name,
        "status": agent.status,
        "trouble": "\n".join(agent.trouble) or None,
        "reason": agent.reason,
        "version": agent.version,
        "commit": agent.commit,
        "held": "pinned: new versions do not move the address" if agent.pinned else None,
        "simulated": agent.simulated or None,
        "waits": "\n".join(_waiting(each, agent.name) for each in agent.waiting) or None,
        "summary": (current and current.summary) or None,
        "tools": ", ".join(current.tools if current else ()) or None,
        "runner": address.runner,
        "tuner": address.tuner,
        "answers": _answers(agent),
        "engine": " ".join(filter(None, (agent.engine, agent.model))) or None,
        "directory": agent.directory,
        "made": age(agent.created_at),
        "description": agent.description,
    }


def _answers(agent: ServedAgent) -> str:
    if not agent.address.is_up:
        return "nothing does; `ratchet serve` would"
    if agent.current is not None and agent.current.status is VersionStatus.QUARANTINED:
        return f"no; `ratchet agent promote {agent.name} {agent.version} --force` takes it out of quarantine"
    return "not everything" if agent.trouble else "yes"


def _waiting(change: WaitingChange, name: str) -> str:
    return (
        f"run {change.run} for your approval: {one_line(change.question)}; see `ratchet approval show"
        f" {change.approval}`, then `ratchet agent approve {name}` or `refuse`"
    )


def _print_runs(runs: Sequence[AgentRunAnswer]) -> None:
    from ratchet.cli.tables import print_table

    print_table(
        runs,
        {
            "run": lambda run: run.run,
            "action": lambda run: run.action,
            "status": lambda run: run.status,
            "decision": lambda run: (run.result or {}).get("decision"),
            "version": lambda run: (run.result or {}).get("version"),
            "asked": lambda run: age(run.created_at),
            "about": lambda run: run.reason or run.message,
        },
    )


@looking_like(of_agents.versions)
def versions_(session: CliSession, _call: CliCall, found: Listing[ListedVersion]) -> None:
    drawn = dict(zip([version.id for version in found.items], graph(found.items), strict=True))
    show_list(
        session,
        found.items,
        {
            "": lambda version: drawn[version.id],
            "version": lambda version: version.version,
            "commit": lambda version: _short(version.commit),
            "parent": lambda version: _short(version.parent),
            "tag": lambda version: version.tag,
            "status": _version_status,
            "made": lambda version: age(version.created_at),
            "summary": lambda version: version.reason or version.summary,
        },
        record=record,
        empty="It has no version yet.",
    )


def _version_status(version: ListedVersion) -> str:
    marks = [version.status, "current" if version.is_current else ""]
    return " ".join(filter(None, [*marks, "simulated" if version.simulated else ""]))


@looking_like(of_agents.diff)
def diff(session: CliSession, _call: CliCall, found: VersionComparison) -> None:
    if session.json:
        print_document(record(found))
        return
    _note_changes(found)
    print_foreign(found.diff, end="")


def _note_changes(found: VersionComparison) -> None:
    old, new = found.old, found.new
    note(f"{old.version} ({_short(old.commit)}) → {new.version} ({_short(new.commit)})")
    for word in ("added", "removed", "changed"):
        if names := getattr(found.tools, word):
            note(f"tools {word}: {one_line(', '.join(names))}")
    if found.is_cut:
        note(
            "The difference is longer than what is shown; `git diff` in the agent's repo.git shows all of it."
        )


def _short(commit: str | None) -> str | None:
    return None if commit is None else commit[:_SHORT]


@command(
    "tools",
    examples=[
        "ratchet agent tools greeter",
        "ratchet agent tools greeter --tuner",
        "ratchet agent tools greeter --version 0.0.0 --json",
    ],
    see=["agent call"],
)
@agent_argument
@_version_option
@_tuner_option
def tools_(session: CliSession, name: str, version: str | None, tuner: bool) -> None:
    """List the tools of an agent, as it lists them itself.

    The agent is asked at its stable address. If `ratchet serve` does not run, the agent is started for this command. An
    argument with a question mark may be left out.
    """
    from ratchet.agents.client import signature

    with calling(session) as call, working(f"asking {name}"):
        found = asyncio.run(of_agents.tools(call, name, version, _role(tuner)))
    show_list(
        session,
        found.items,
        {
            "tool": lambda tool: tool.name,
            "arguments": lambda tool: ", ".join(signature(tool)) or None,
            "description": lambda tool: tool.description,
        },
        record=record,
        empty=f"{name} has no tools.",
    )


@command(
    examples=[
        "ratchet agent call greeter greet name=Ada",
        "ratchet agent call sums add numbers='[1, 2, 3]'",
        "ratchet agent call sums add --arguments '{\"numbers\": [1, 2, 3]}'",
        'ratchet agent call greeter give_feedback --tuner text="too formal"',
    ],
    see=["agent tools", "agent logs", "agent feedback"],
)
@agent_argument
@click.argument("tool", metavar="TOOL", help="A tool that `ratchet agent tools` lists.")
@click.argument(
    "pairs",
    metavar="[KEY=VALUE]…",
    nargs=-1,
    help="Arguments of the tool; @FILE as a value is the text of that file.",
)
@click.option("--arguments", "document", metavar="JSON", help="All arguments as one JSON object.")
@_version_option
@_tuner_option
@click.option(
    "--timeout",
    type=Amount(86_400),
    default=CALL_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Wait for an answer no longer.",
)
def call(
    session: CliSession,
    name: str,
    tool: str,
    pairs: tuple[str, ...],
    document: str | None,
    version: str | None,
    tuner: bool,
    timeout: float,
) -> int:
    """Call a tool of an agent and print its answer.

    A VALUE is read as JSON where the tool takes what that says: a number, true, a list. Otherwise it is text. @FILE is
    the text of that file, and @@ an @. If `ratchet serve` does not run, the agent is started for this call.

    Exits with 1 when the tool says that it failed, or does not answer.
    """
    from ratchet.agents.client import check_arguments, parse_arguments

    if pairs and document is not None:
        raise Misuse("arguments are given twice", hint="use KEY=VALUE or --arguments")
    whole = None if document is None else _parsed(document)
    given = with_file_texts(pairs)

    def arguments(shape: ToolShape) -> Mapping[str, Any]:
        return parse_arguments(shape, given) if whole is None else check_arguments(shape, whole)

    with calling(session) as access, working(f"{name} works"):
        answer = asyncio.run(
            of_agents.called(
                access, name, tool, arguments, version=version, server=_role(tuner), seconds=timeout
            )
        )
    show_page(session, record(answer), _print_answer, answer.text, answer.content)
    if answer.failed and not session.json:
        note(f"error: {tool} of {name} failed")
    return 1 if answer.failed else 0


def _role(tuner: bool) -> Role:
    return Role.TUNER if tuner else Role.RUNNER


def _parsed(document: str) -> dict[str, Any]:
    try:
        found = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"--arguments is not JSON: {error}", hint="""such as --arguments '{"n": 3}'""") from None
    if not isinstance(found, dict):
        raise Misuse("--arguments is no JSON object", hint="""such as --arguments '{"n": 3}'""")
    return found


def _print_answer(text: str, content: Sequence[Mapping[str, Any]]) -> None:
    print_foreign(text)
    others = sorted({str(part.get("type")) for part in content if "text" not in part})
    if others:
        note(f"Besides text it answered with: {', '.join(others)}; --json shows all of it.")


@command(
    examples=[
        "ratchet agent logs greeter",
        "ratchet agent logs greeter --server tuner -n 200",
        "ratchet agent logs greeter --version 0.0.0 --printed",
        "ratchet agent logs greeter --follow",
    ],
    see=["agent call"],
)
@agent_argument
@_version_option
@click.option(
    "--server",
    type=click.Choice([str(role) for role in Role]),
    default=str(Role.RUNNER),
    show_default=True,
    help="Which of the two servers.",
)
@click.option(
    "--lines",
    "-n",
    "count",
    type=Number(0, log_files.MOST_LINES),
    default=50,
    show_default=True,
    help="At most so many, the last ones.",
)
@click.option(
    "--printed", is_flag=True, help="What it printed, such as a traceback, instead of what it logged."
)
@click.option("--follow", "-f", "following", is_flag=True, help="Keep showing what is logged, until Ctrl-C.")
def logs(
    session: CliSession,
    name: str,
    version: str | None,
    server: str,
    count: int,
    printed: bool,
    following: bool,
) -> None:
    """Show what an agent's servers have logged.

    Each version has logs of its own, in logs/ of its directory: what a server wrote with the kit's `log`, and apart
    from that what it printed. With --follow and --json each line is one JSON document.
    """
    with calling(session) as access, access.read() as tx:
        log = log_files.find_log(tx, access.home, name, Role(server), version, printed=printed)
    end = log_files.tail(log, count)
    if following:
        _follow(session, log, end)
    elif session.json:
        print_document(record(of_agents.AgentLogLines.of(log, end)))
    else:
        _print_log(session, end)
        if not end.lines:
            what, other = ("printed", "") if printed else ("logged", "; --printed shows what it printed")
            note(f"The {server} of {name} {log.commit[:_SHORT]} has {what} nothing{other}.")


def _follow(session: CliSession, log: log_files.AgentLog, end: log_files.LogEnd) -> None:
    _print_log(session, end)
    if not session.json:
        note("Following; Ctrl-C ends it.")
    try:
        while True:
            time.sleep(_LOOK_SECONDS)
            end = log_files.after(log, end)
            _print_log(session, end)
    except KeyboardInterrupt:
        return  # the way that following ends


def _print_log(session: CliSession, end: log_files.LogEnd) -> None:
    for line in end.lines:
        if session.json:
            print_line({"line": line})
        else:
            print_foreign(line)


@command(
    examples=[
        "ratchet agent state greeter",
        "ratchet agent state greeter --history",
        "ratchet agent state greeter --at 3",
        "ratchet agent state greeter --restore 3",
    ]
)
@agent_argument
@_version_option
@click.option("--history", is_flag=True, help="List the changes of the state, newest first.")
@click.option("--limit", "-n", type=COUNT, default=20, show_default=True, help="At most so many changes.")
@click.option("--before", type=ID, metavar="N", help="Only changes older than this one: the next page.")
@click.option("--at", type=ID, metavar="N", help="Show the state as it was after change N.")
@click.option("--restore", type=ID, metavar="N", help="Bring the state after change N back, as a new change.")
def state(
    session: CliSession,
    name: str,
    version: str | None,
    history: bool,
    limit: int,
    before: int | None,
    at: int | None,
    restore: int | None,
) -> None:
    """Show an agent's state, its history, or bring an earlier one back.

    The state is one JSON object, checked against the schema of its version. Every change is kept, no matter
    who made it: the agent, the Architect, or --restore. What is printed is JSON in any case, except for the history.
    """
    if sum((history, at is not None, restore is not None)) > 1:
        raise Misuse("--history, --at and --restore exclude each other", hint="give one of them")
    with calling(session) as access:
        if history:
            changes = of_agents.history(access, Window(before, limit), name, version)
            show_answer(session, of_agents.history, changes)
        elif restore is not None:
            change = of_agents.restore(access, name, restore, version)
            done = f"{name} has the state of change {restore} again, as change {change.number}."
            confirm(session, record(change), done)
        else:
            print_document(of_agents.state(access, name, version, at))


@command(
    examples=[
        "ratchet agent export greeter ./greeter",
        "ratchet agent export greeter /srv/greeter --version 0.1.0",
    ]
)
@agent_argument
@click.argument("directory", metavar="DIRECTORY", type=click.Path(path_type=Path), help="A new directory.")
@_version_option
def export(session: CliSession, name: str, directory: Path, version: str | None) -> None:
    """Write an agent into a folder that runs without Ratchet.

    It has the code of the version, the present state, the kit, requirements.txt, a Dockerfile, and a README that says
    how it is started. Secrets are not in it.
    """
    from ratchet.agents.actions import export_agent

    with calling(session) as access:
        made = export_agent(access, name, directory.absolute(), version)
    done = f"{name} lies in {made}; {made / 'README.md'} says how it is started."
    confirm(session, {"directory": str(made)}, done)
