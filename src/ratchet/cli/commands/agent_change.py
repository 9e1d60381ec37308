"""`ratchet agent rollback`, `promote`, `pin` and `delete`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ratchet.agents import operations
from ratchet.agents.views import one_agent
from ratchet.cli.command import command
from ratchet.cli.opening import existing_runtime
from ratchet.cli.output import confirm, note
from ratchet.cli.params import agent_argument
from ratchet.kernel import Misuse
from ratchet.ledger.agents import get_agent
from ratchet.runtime import Kinds, Runtime

if TYPE_CHECKING:
    from ratchet.agents.operations import Moved
    from ratchet.cli.session import Session

_ACTOR = "cli"
_FREE = "latest"
_version_argument = click.argument(
    "version",
    metavar="VERSION",
    help="A commit, a number such as 0.1.0, a tag such as v0.1.0, `current` or `latest`.",
)


@command(
    examples=["ratchet agent rollback greeter", "ratchet agent rollback greeter 0.1.0 --carry-state"],
    see=["agent versions", "agent promote", "agent pin"],
)
@agent_argument
@click.argument(
    "version",
    metavar="[VERSION]",
    required=False,
    help="A commit, a number such as 0.1.0 or a tag; the one that was current before if not given.",
)
@click.option(
    "--carry-state", is_flag=True, help="Give it the present state, instead of the one that it was left with."
)
@click.pass_obj
def rollback(session: Session, name: str, version: str | None, carry_state: bool) -> None:
    """Take an agent back to an earlier version.

    Without VERSION to the one that was current before. Every version keeps a state of its own, and goes on with it;
    with --carry-state it is given the present one, if that fits its schema. Calls in flight finish where they began.
    Nothing is deleted: `ratchet agent promote` goes forward again.
    """
    with existing_runtime(session, Kinds()) as runtime:
        moved = operations.rollback(runtime, name, version, carry_state=carry_state, actor=_ACTOR)
        _confirm(session, runtime, name, f"{name} is back at {_named(moved)}.")


@command(
    examples=["ratchet agent promote greeter 0.2.0", "ratchet agent promote greeter 9f1c2ab --force"],
    see=["agent versions", "agent rollback"],
)
@agent_argument
@_version_argument
@click.option("--force", is_flag=True, help="Also a quarantined version; that takes it out of quarantine.")
@click.pass_obj
def promote(session: Session, name: str, version: str, force: bool) -> None:
    """Let an agent's address lead to this version.

    For a variant that turned out better, or to go forward again after a rollback. VERSION is a commit or its
    beginning, a number such as 0.1.0, or a tag such as v0.1.0.
    """
    with existing_runtime(session, Kinds()) as runtime:
        moved = operations.promote(runtime, name, version, force=force, actor=_ACTOR)
        told = f"{name} is now {_named(moved)}." if moved.moved else f"{name} is {_named(moved)} already."
        _confirm(session, runtime, name, told)


@command(
    examples=[
        "ratchet agent pin greeter 0.1.0",
        "ratchet agent pin greeter current",
        "ratchet agent pin greeter latest",
    ],
    see=["agent promote"],
)
@agent_argument
@_version_argument
@click.pass_obj
def pin(session: Session, name: str, version: str) -> None:
    """Hold an agent's address at a version, or let it move again.

    While it is pinned, feedback still makes new versions, but the address does not follow them. `latest` takes the pin
    away; the address stays where it is until there is a new version. To pin a single caller, have it use the address
    /agents/NAME@VERSION/runner/mcp instead.
    """
    with existing_runtime(session, Kinds()) as runtime:
        if version.strip().lower() == _FREE:
            operations.unpin(runtime, name, actor=_ACTOR)
            told = f"{name} follows new versions again."
        else:
            moved = operations.pin(runtime, name, version, actor=_ACTOR)
            told = f"{name} is pinned at {_named(moved)}; `ratchet agent pin {name} latest` lets it go."
        _confirm(session, runtime, name, told)


@command(
    examples=["ratchet agent delete greeter", "ratchet agent delete greeter --yes --purge"],
    see=["agent list"],
)
@agent_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--purge", is_flag=True, help="Remove its directory with all versions and states for good.")
@click.pass_obj
def delete(session: Session, name: str, yes: bool, purge: bool) -> int:
    """Delete an agent; its name is free again.

    Its servers are stopped and its address answers no more. Its directory is put away, not removed, unless --purge says
    so. What happened stays in the ledger.
    """
    with existing_runtime(session, Kinds()) as runtime:
        with runtime.ledger.read() as tx:
            get_agent(tx, name)
        if not yes and not _agreed(name, purge=purge):
            note(f"{name} stays.")
            return 1
        kept = operations.delete(runtime, name, purge=purge, actor=_ACTOR)
    told = f"{name} is deleted." if kept is None else f"{name} is deleted; its files lie in {kept}."
    confirm(session, {"agent": name, "deleted": True, "directory": kept and str(kept)}, told)
    return 0


def _agreed(name: str, *, purge: bool) -> bool:
    if not sys.stdin.isatty():
        raise Misuse(f"deleting {name} needs a yes, and nobody can be asked", hint="add --yes")
    gone = " with all its versions and states, for good" if purge else ""
    return click.confirm(f"Delete {name}{gone}?", err=True)


def _named(moved: Moved) -> str:
    return f"{moved.version.version} ({moved.version.commit[:12]})"


def _confirm(session: Session, runtime: Runtime, name: str, told: str) -> None:
    with runtime.ledger.read() as tx:
        agent = one_agent(tx, runtime.home, runtime.settings.agents, name)
    confirm(session, agent, told)
