"""`ratchet tool list`, `show`, `search` and `versions`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.output import note, print_document, show_list, show_one
from ratchet.cli.params import COUNT, ID, tool_argument
from ratchet.cli.toolbox import existing_toolbox, located
from ratchet.cli.words import age_of, compact, cost_words, lines
from ratchet.tools.definition import ToolType
from ratchet.workflows import views

if TYPE_CHECKING:
    from ratchet.cli.session import Session

type_option = click.option(
    "--type", "kind", type=click.Choice([str(each) for each in ToolType]), help="Only of this type."
)


@command(
    "list",
    examples=[
        "ratchet tool list",
        "ratchet tool list --type executable",
        "ratchet tool list --by-score",
        "ratchet tool list --tag text --json | jq -r '.[].tool'",
    ],
    see=["tool show", "tool search"],
)
@type_option
@click.option("--tag", metavar="TAG", help="Only with this tag.")
@click.option("--by-score", is_flag=True, help="The best first, with how good their calls were.")
@click.pass_obj
def list_(session: Session, kind: str | None, tag: str | None, by_score: bool) -> None:
    """List tools by name.

    They come from YAML and JSON files in `tools` of Ratchet's home and in the folders of the setting `tools.folders`,
    from installed packages, from the MCP servers in the settings, and from `ratchet tool add`.
    """
    with existing_toolbox(session) as (ledger, toolbox):
        versions = sorted(toolbox.list(), key=lambda each: each.name)
        found = [views.tool_record(version) for version in versions]
        if by_score:
            with ledger.read() as tx:
                ranked = views.best_first(tx, versions)
            found = [{**views.tool_record(version), "score": score} for version, score in ranked]
        broken = list(toolbox.broken)
    wanted = [each for each in found if kind in (None, each["type"]) and (tag is None or tag in each["tags"])]
    show_list(
        session,
        wanted,
        {
            "tool": lambda each: each["tool"],
            "score": lambda each: None if each.get("score") is None else f"{each['score']:.2f}",
            "type": lambda each: each["type"],
            "version": lambda each: each["version"],
            "pinned": lambda each: each["pinned"] or None,
            "description": lambda each: each["problem"] or each["description"] or None,
        },
        record=lambda each: each,
        empty="No tools yet. `ratchet tool add FILE` adds one; docs/tools.md shows how one is written.",
    )
    for each in broken:
        note(f"warning: {lines(each.reason)}")


@command(
    examples=[
        "ratchet tool show split_words",
        "ratchet tool show split_words --version 1.0.0 --json | jq .definition",
    ],
    see=["tool versions", "tool run"],
)
@tool_argument
@click.option("--version", metavar="VERSION", help="This version; the one that is called if not given.")
@click.pass_obj
def show(session: Session, tool: str, version: str | None) -> None:
    """Show one tool: what it takes, what it answers, how it has done."""
    name, folders = located(tool)
    with existing_toolbox(session, folders=folders) as (ledger, toolbox):
        chosen = toolbox.get(name, version)
        with ledger.read() as tx:
            found = views.one_tool(tx, chosen)
    show_one(session, found, _fields(found))
    if not session.json:
        for warning in found["warnings"]:
            note(f"warning: {lines(warning)}")


@command(
    examples=[
        'ratchet tool search "convert temperatures"',
        'ratchet tool search "translate a text" --type llm --json',
    ],
    see=["tool run", "tool feedback"],
)
@click.argument("task", metavar="TASK", help="What is to be done, in words.")
@type_option
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only with this tag, and all others given.")
@click.option("--limit", "-n", type=COUNT, default=5, show_default=True, help="At most so many.")
@click.pass_obj
def search(session: Session, task: str, kind: str | None, tags: tuple[str, ...], limit: int) -> None:
    """Find tools for a task, and say why each was chosen.

    Tools are found by meaning, and weighed by what is known of them: speed, cost, quality, how their calls went, and
    what people said of them.
    """
    with existing_toolbox(session) as (_, toolbox):
        found = toolbox.search(task, limit, type=None if kind is None else ToolType(kind), tags=tags)
    records = [views.choice_record(choice) for choice in found]
    if session.json:
        print_document(records)
        return
    # Only now: the other commands of this module search nothing.
    from ratchet.memory import search_advice

    if advice := search_advice():
        note(advice)
    if not records:
        note("No tool fits. `ratchet tool list` shows those that there are.")
    for each in records:
        print(f"{each['tool']} {each['version']}  {each['fitness']:g}  {lines(each['description'])}".rstrip())
        for reason in each["reasons"]:
            print(f"  {reason['points']:+g}  {lines(reason['why'])}")


@command(
    "versions",
    examples=[
        "ratchet tool versions split_words",
        "ratchet tool versions split_words --json | jq -r '.[] | [.version, .status] | @tsv'",
    ],
    see=["tool pin", "tool rollback"],
)
@tool_argument
@click.option("--limit", "-n", type=COUNT, default=50, show_default=True, help="At most so many.")
@click.option("--before", type=ID, metavar="ID", help="Only older than this version: the next page.")
@click.pass_obj
def versions_(session: Session, tool: str, limit: int, before: int | None) -> None:
    """List the versions of a tool, newest first.

    @ is the one that is called. Variants that were tried and refused are listed as well, with the reason.
    """
    name, folders = located(tool)
    with existing_toolbox(session, folders=folders) as (ledger, toolbox):
        called = toolbox.get(name)
        with ledger.read() as tx:
            found = views.tool_versions(tx, called, before=before, limit=limit)
    show_list(
        session,
        found,
        {
            "": lambda each: "@" if each["is_called"] else "o",
            "version": lambda each: each["version"],
            "status": lambda each: each["status"],
            "from": lambda each: each["origin"],
            "calls": lambda each: each["calls"],
            "failures": lambda each: each["failures"] or None,
            "made": lambda each: age_of(each["created_at"]),
            "reason": lambda each: each["reason"],
        },
        record=lambda each: each,
        empty=f"{tool} has no versions.",
    )


def _fields(found: dict[str, Any]) -> dict[str, object]:
    definition, stats = found["definition"], found["stats"]
    return {
        "tool": found["tool"],
        "type": found["type"],
        "version": found["version"] + (" (pinned)" if found["pinned"] else ""),
        "from": found["source"],
        "problem": found["problem"],
        "description": found["description"] or None,
        "tags": ", ".join(found["tags"]) or None,
        "takes": _said(definition.get("input_schema")),
        "answers": _said(definition.get("output_schema")),
        "constraints": compact(definition.get("constraints")),
        "examples": found["examples"] or None,
        "calls": stats["runs"] or None,
        "success": None if stats["success_rate"] is None else f"{stats['success_rate']:.0%}",
        "time": None if stats["mean_wall_ms"] is None else f"{stats['mean_wall_ms']:.1f}ms on average",
        "cost": f"{cost_words(stats)} so far" if stats["tokens"] else None,
        "score": None if stats["mean_score"] is None else f"{stats['mean_score']:.2f} of 1",
    }


def _said(schema: Any) -> str | None:
    """A schema in short: its properties, or what it is where it has none. --json has the whole of it."""
    if not isinstance(schema, dict):
        return compact(schema)
    from ratchet.agents.client import described

    return "\n".join(described(schema)) or compact(schema)
