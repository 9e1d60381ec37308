"""`ratchet agent list`, `show`, `versions` and `diff`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ratchet.agents import views
from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import note, print_document, show_list, show_one
from ratchet.cli.params import COUNT, ID, agent_argument
from ratchet.cli.words import age_of, lines, one_line

if TYPE_CHECKING:
    from ratchet.cli.session import Session

_SHORT = 12


@command("list", examples=["ratchet agent list", "ratchet agent list --json | jq -r '.[].name'"])
@click.option("--limit", "-n", type=COUNT, default=100, show_default=True, help="At most so many.")
@click.option("--after", default="", metavar="NAME", help="Only names after this one: the next page.")
@click.pass_obj
def list_(session: Session, limit: int, after: str) -> None:
    """List agents by name.

    The version is the one that an agent's address leads to now.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = views.agents(tx, after=after, limit=limit)
    show_list(
        session,
        found,
        {
            "agent": lambda agent: agent["name"],
            "status": lambda agent: agent["status"],
            "version": lambda agent: agent["version"],
            "commit": lambda agent: _short(agent["commit"]),
            "pinned": lambda agent: agent["pinned"] or None,
            "simulated": lambda agent: agent["simulated"] or None,
            "changed": lambda agent: age_of(agent["updated_at"]),
            "description": lambda agent: agent["reason"] or agent["description"],
        },
        record=lambda agent: agent,
        empty='No agents yet. `ratchet agent create NAME "WHAT IT SHOULD DO"` makes one.',
    )


@command(
    examples=["ratchet agent show greeter", "ratchet agent show greeter --json | jq -r .address.runner"],
    see=["agent versions", "agent tools"],
)
@agent_argument
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show one agent: its version, its address, its last runs.

    The address stays the same whatever the version. Whether anybody answers there now is said, too: `ratchet serve`
    would.
    """
    loaded = session.load()
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = views.one_agent(tx, loaded.home, loaded.settings.agents, name)
    show_one(session, found, _fields(found))
    if found["runs"] and not session.json:
        print()
        _print_runs(found["runs"])


@command(
    "versions",
    examples=[
        "ratchet agent versions greeter",
        "ratchet agent versions greeter --json | jq -r '.[] | [.version, .commit] | @tsv'",
    ],
    see=["agent diff", "agent promote"],
)
@agent_argument
@click.option("--limit", "-n", type=COUNT, default=50, show_default=True, help="At most so many.")
@click.option("--before", type=ID, metavar="ID", help="Only older than this version: the next page.")
@click.pass_obj
def versions_(session: Session, name: str, limit: int, before: int | None) -> None:
    """List the versions of an agent, newest first.

    @ is the current version, o any other, and | leads down to the version that one was made from; what stands in a
    column of its own is a variant. Versions are commits: `git log` works in the agent's repo.git.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = views.versions(tx, name, before=before, limit=limit)
    drawn = dict(zip([version["id"] for version in found], views.graph(found), strict=True))
    show_list(
        session,
        found,
        {
            "": lambda version: drawn[version["id"]],
            "version": lambda version: version["version"],
            "commit": lambda version: _short(version["commit"]),
            "parent": lambda version: _short(version["parent"]),
            "tag": lambda version: version["tag"],
            "status": _version_status,
            "made": lambda version: age_of(version["created_at"]),
            "summary": lambda version: version["reason"] or version["summary"],
        },
        record=lambda version: version,
        empty=f"{name} has no version yet.",
    )


@command(
    examples=[
        "ratchet agent diff greeter",
        "ratchet agent diff greeter 0.0.0",
        "ratchet agent diff greeter 0.0.0 0.1.0 --json",
    ],
    see=["agent versions"],
)
@agent_argument
@click.argument(
    "old", metavar="[OLD]", required=False, help="A version; the one NEW was made from if not given."
)
@click.argument("new", metavar="[NEW]", required=False, help="A version; the current one if not given.")
@click.pass_obj
def diff(session: Session, name: str, old: str | None, new: str | None) -> None:
    """Show what differs between two versions of an agent.

    Without OLD it is the version that NEW was made from, and without NEW the current one. The patch goes to stdout, as
    `git diff` writes it, and what became of the tools to stderr.
    """
    loaded = session.load()
    with existing_ledger(session) as ledger, ledger.read() as tx:
        compared = views.find_compared(tx, name, old, new)
    found = views.comparison(loaded.home, compared)
    if session.json:
        print_document(found)
        return
    _note_changes(found)
    # A terminal would obey what an engine has written; a program that reads a patch wants it as it is.
    print(f"{lines(found['diff'])}\n" if sys.stdout.isatty() else found["diff"], end="")


def _fields(agent: dict[str, Any]) -> dict[str, object]:
    current, address = agent["current"] or {}, agent["address"]
    return {
        "agent": agent["name"],
        "status": agent["status"],
        "reason": agent["reason"],
        "version": agent["version"],
        "commit": agent["commit"],
        "held": "pinned: new versions do not move the address" if agent["pinned"] else None,
        "simulated": agent["simulated"] or None,
        "summary": current.get("summary") or None,
        "tools": ", ".join(current.get("tools", [])) or None,
        "runner": address["runner"],
        "tuner": address["tuner"],
        "answers": "yes" if address["is_up"] else "nobody does; `ratchet serve` would",
        "engine": " ".join(filter(None, (agent["engine"], agent["model"]))) or None,
        "directory": agent["directory"],
        "made": age_of(agent["created_at"]),
        "description": agent["description"],
    }


def _print_runs(runs: list[dict[str, Any]]) -> None:
    from ratchet.cli.tables import print_table

    print_table(
        runs,
        {
            "run": lambda run: run["run"],
            "action": lambda run: run["action"],
            "status": lambda run: run["status"],
            "decision": lambda run: (run["result"] or {}).get("decision"),
            "version": lambda run: (run["result"] or {}).get("version"),
            "asked": lambda run: age_of(run["created_at"]),
            "about": lambda run: run["reason"] or run["message"],
        },
    )


def _version_status(version: dict[str, Any]) -> str:
    marks = [version["status"], "current" if version["is_current"] else ""]
    return " ".join(filter(None, [*marks, "simulated" if version["simulated"] else ""]))


def _note_changes(found: dict[str, Any]) -> None:
    old, new = found["old"], found["new"]
    note(f"{old['version']} ({_short(old['commit'])}) → {new['version']} ({_short(new['commit'])})")
    for word in ("added", "removed", "changed"):
        if found["tools"][word]:
            note(f"tools {word}: {one_line(', '.join(found['tools'][word]))}")
    if found["is_cut"]:
        note(
            "The difference is longer than what is shown; `git diff` in the agent's repo.git shows all of it."
        )


def _short(commit: str | None) -> str | None:
    return None if commit is None else commit[:_SHORT]
