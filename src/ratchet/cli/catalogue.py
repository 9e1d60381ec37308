"""Every command by its name: what it is for and where it lives.

Help is drawn from this table, so that asking for it imports no command and nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Leaf(NamedTuple):
    """A command, as `module:name` in `ratchet.cli.commands`."""

    help: str
    target: str


class Branch(NamedTuple):
    """A command that holds further commands."""

    help: str
    parts: Mapping[str, Leaf]


CATALOGUE: Mapping[str, Leaf | Branch] = {
    "init": Leaf("Make a home with its settings and ledger.", "init:init"),
    "demo": Leaf("Watch a durable run, and see it survive a kill.", "demo:demo"),
    "serve": Leaf("Serve the HTTP API, with a worker inside.", "serve:serve"),
    "worker": Leaf("Do jobs until told to stop.", "worker:worker"),
    "doctor": Leaf("Check this machine and the ledger, and say how to mend them.", "doctor:doctor"),
    "events": Leaf("Show what happened, or follow it as it happens.", "events:events"),
    "engine": Branch(
        "Engines: what proposes changes.",
        {
            "list": Leaf("List the engines and what each can do.", "engine:list_"),
            "check": Leaf("Look whether engines could be used now, and say what is missing.", "engine:check"),
            "record": Leaf(
                "Run one session and keep it as a cassette, to be replayed without a model.", "engine:record"
            ),
        },
    ),
    "memory": Branch(
        "Lessons, tools and past work, found by meaning.",
        {
            "store": Leaf("Remember a text.", "memory:store"),
            "find": Leaf("Find what means most nearly the same, or has the same words.", "memory:find"),
            "list": Leaf("List what is remembered, newest first.", "memory:list_"),
            "delete": Leaf("Forget one entry, or all that fit.", "memory:delete"),
            "reembed": Leaf("Make every vector anew, after the embedder has changed.", "memory:reembed"),
        },
    ),
    "runs": Branch(
        "Runs and their steps.",
        {
            "list": Leaf("List runs, newest first.", "runs:list_"),
            "show": Leaf("Show one run with its steps.", "runs:show"),
            "pause": Leaf("Pause a run; what it has recorded stays.", "runs:pause"),
            "resume": Leaf("Go on with a paused or blocked run.", "runs:resume"),
            "cancel": Leaf("Cancel a run for good.", "runs:cancel"),
        },
    ),
    "approval": Branch(
        "Questions that wait for a person.",
        {
            "list": Leaf("List what waits for a person, newest first.", "approval:list_"),
            "show": Leaf("Show one approval with what is to be decided on.", "approval:show"),
            "approve": Leaf("Say yes; a run that waited for it goes on.", "approval:approve"),
            "refuse": Leaf("Say no; a run that waited for it goes on without the change.", "approval:refuse"),
        },
    ),
    "queue": Branch(
        "Queues and the jobs in them.",
        {
            "list": Leaf("List queues and how many jobs they hold.", "queue:list_"),
            "jobs": Leaf("List jobs, newest first.", "queue:jobs"),
            "show": Leaf("Show one job.", "queue:show"),
            "cancel": Leaf("Cancel a job; a running one is told to stop.", "queue:cancel"),
            "pause": Leaf("Let a queue stand still; running jobs go on.", "queue:pause"),
            "resume": Leaf("Let a paused queue go on.", "queue:resume"),
        },
    ),
    "schedule": Branch(
        "Jobs that come again by the clock.",
        {
            "list": Leaf("List schedules with their next time.", "schedule:list_"),
            "add": Leaf("Make or replace a schedule.", "schedule:add"),
            "pause": Leaf("Let a schedule rest.", "schedule:pause"),
            "resume": Leaf("Let a paused schedule go on.", "schedule:resume"),
            "remove": Leaf("Remove a schedule.", "schedule:remove"),
        },
    ),
    "processes": Leaf("List the servers and workers on this ledger.", "processes:processes"),
    "ledger": Branch(
        "The database and the files beside it.",
        {
            "backup": Leaf("Write a backup of ledger and artifacts to a file.", "ledger:backup"),
            "restore": Leaf("Put a backup in the place of the ledger.", "ledger:restore"),
            "check": Leaf("Check ledger and artifacts for damage.", "ledger:check"),
            "vacuum": Leaf("Remove what the rules no longer keep, and shrink the file.", "ledger:vacuum"),
        },
    ),
    "config": Branch(
        "Settings and where they come from.",
        {
            "show": Leaf("Show every setting, its value and its source.", "config:show"),
            "path": Leaf("Print the path of ratchet.toml.", "config:path"),
        },
    ),
    "dev": Branch(
        "Tools for developing with Ratchet.",
        {
            "model-server": Leaf(
                "Serve scripted models to real agents, without a network or a key.", "dev:model_server"
            )
        },
    ),
    "completion": Leaf("Print the completion script of a shell.", "completion:completion"),
}
