"""`ratchet tool add`, `pin`, `unpin`, `rollback` and `feedback`"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm, note, print_document
from ratchet.cli.params import ID, tool_argument
from ratchet.cli.progress import working
from ratchet.cli.toolbox import existing_toolbox, located, working_toolbox
from ratchet.cli.words import lines
from ratchet.kernel import Misuse
from ratchet.tools.definition import read_name
from ratchet.tools.invocation import take_server
from ratchet.workflows import views
from ratchet.workflows.evolution import roll_back_tool
from ratchet.workflows.runs.plan import tool_of_run

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.runtime import Runtime
    from ratchet.tools.definition import Tool
    from ratchet.tools.registry import Toolbox, ToolVersion


@command(
    examples=[
        "ratchet tool add split_words.yaml",
        "ratchet tool add split_words.yaml --replace",
        "ratchet tool add --from-run 12 --tool count_words",
        "ratchet tool add --mcp files",
    ],
    see=["tool test", "tool versions"],
)
@click.argument("file", metavar="[FILE]", required=False, help="A definition, YAML or JSON.")
@click.option(
    "--from-run", "run_id", type=ID, metavar="RUN", help="A tool that this run's workflow brought with it."
)
@click.option("--tool", "name", metavar="TOOL", help="Which one, if the run has several.")
@click.option("--mcp", "server", metavar="SERVER", help="All tools of this MCP server of the settings.")
@click.option("--replace", is_flag=True, help="Let it take the place of one of the same id.")
@click.pass_obj
def add(
    session: Session,
    file: str | None,
    run_id: int | None,
    name: str | None,
    server: str | None,
    replace: bool,
) -> None:
    """Add a tool from its definition, or a new version of it.

    FILE is a YAML or JSON definition; it is copied into the home with the files that it names. A changed definition is
    a new version, by its change_type. With --from-run a tool that was written for a workflow is put among all others.
    """
    if sum(each is not None for each in (file, run_id, server)) != 1:
        raise Misuse("it is not clear what to add", hint="give a FILE, --from-run RUN, or --mcp SERVER")
    with working_toolbox(session) as (runtime, toolbox):
        if server is not None:
            _add_server(session, runtime, toolbox, server)
            return
        source = _file(file) if file is not None else _of_run(runtime, run_id or 0, name)
        added = toolbox.add(source, replace=replace)
    for warning in added.tool.warnings:
        note(f"warning: {lines(warning)}")
    _confirm(session, added, f"{added.name} {added.version} is added.")


@command(examples=["ratchet tool pin split_words 1.0.0"], see=["tool unpin", "tool versions"])
@tool_argument
@click.argument("version", metavar="VERSION", help="A version that `ratchet tool versions` lists.")
@click.pass_obj
def pin(session: Session, tool: str, version: str) -> None:
    """Hold a tool at a version.

    Every workflow calls that version, whatever its definition says later and whatever is promoted, until it is
    unpinned. What is pinned is not evolved.
    """
    name, folders = located(tool)
    with existing_toolbox(session, folders=folders) as (_, toolbox):
        held = toolbox.pin(name, version)
    _confirm(session, held, f"{tool} is pinned at {held.version}; `ratchet tool unpin {tool}` lets it go.")


@command(examples=["ratchet tool unpin split_words"], see=["tool pin"])
@tool_argument
@click.pass_obj
def unpin(session: Session, tool: str) -> None:
    """Let a tool follow its newest version again."""
    name, folders = located(tool)
    with existing_toolbox(session, folders=folders) as (_, toolbox):
        free = toolbox.unpin(name)
    _confirm(session, free, f"{tool} follows what is promoted again, and is {free.version} now.")


@command(examples=["ratchet tool rollback split_words"], see=["tool versions"])
@tool_argument
@click.pass_obj
def rollback(session: Session, tool: str) -> None:
    """Take a tool back to the version before.

    What was taken back stays on record and is not promoted again. A pinned tool is not moved.
    """
    name, folders = located(tool)
    with working_toolbox(session, folders=folders) as (runtime, toolbox):
        own, _ = read_name(name)
        roll_back_tool(runtime, own, folder=toolbox.get(name).folder, actor="cli")
        back = toolbox.get(name)
    _confirm(session, back, f"{tool} is back at {back.version}.")


@command(
    examples=[
        'ratchet tool feedback split_words "count the words of a poem" --good',
        'ratchet tool feedback split_words "split Chinese text" --bad',
    ],
    see=["tool search"],
)
@tool_argument
@click.argument("task", metavar="TASK", help="What it was used for, in words.")
@click.option("--good/--bad", "good", default=None, help="Whether it served.")
@click.pass_obj
def feedback(session: Session, tool: str, task: str, good: bool | None) -> None:
    """Say how well a tool has served.

    TASK is what it was used for. It counts when tools for a like task are searched.
    """
    if good is None:
        raise Misuse("it is not said whether the tool served", hint="add --good or --bad")
    with existing_toolbox(session) as (_, toolbox):
        toolbox.record_feedback(tool, good, task)
    confirm(session, {"tool": tool, "good": good, "task": task}, f"It is remembered for {tool}.")


def _file(file: str) -> Path:
    path = Path(file)
    if not path.is_file():
        raise Misuse(f"there is no file {file}", hint="name a YAML or JSON file with a definition in it")
    return path


def _of_run(runtime: Runtime, run_id: int, name: str | None) -> Tool:
    with runtime.ledger.read() as tx:
        return tool_of_run(tx, run_id, name)


def _add_server(session: Session, runtime: Runtime, toolbox: Toolbox, server: str) -> None:
    with working(f"asking {server}"):
        found = asyncio.run(take_server(runtime, toolbox, server, actor="cli"))
    if session.json:
        print_document([views.tool_record(each) for each in found])
    else:
        print(f"{server} has {', '.join(each.name for each in found) or 'no tools'}.")


def _confirm(session: Session, version: ToolVersion, told: str) -> None:
    confirm(session, views.tool_record(version), told)
