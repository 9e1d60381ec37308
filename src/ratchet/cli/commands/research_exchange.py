"""`ratchet research import` and `export`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import confirm, note
from ratchet.cli.params import research_argument
from ratchet.cli.session import configure_logs
from ratchet.cli.words import one_line
from ratchet.kernel import Direction, RatchetError
from ratchet.ledger.research import find_research
from ratchet.ledger.runs import get_run
from ratchet.research.campaign import task_of
from ratchet.research.exchange import export_run, import_run
from ratchet.runtime import open_ledger

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.ledger import Ledger, Run
    from ratchet.research.adapter import TaskAdapter

# As many remarks as a person reads; a program gets all of them.
_REMARKS = 50
_directory = click.Path(path_type=Path)


@command(
    "import",
    examples=[
        "ratchet research import ../old/blackboard --name old-tides",
        "ratchet research import ../old --name old-tides --task tides --direction min",
    ],
    see=["research export"],
)
@click.argument("directory", metavar="DIR", type=_directory, help="The folder of that run.")
@click.option("--name", metavar="NAME", required=True, help="What to call the run.")
@click.option("--task", metavar="TASK", help="The name of its task, if the files do not say.")
@click.option(
    "--direction",
    type=click.Choice([str(each) for each in Direction]),
    help="Which way a score is better, if the rows do not say.",
)
def import_(session: CliSession, directory: Path, name: str, task: str | None, direction: str | None) -> None:
    """Take over a run of the original system as a record of its trials.

    DIR has results.tsv in it, or a blackboard with it. Rows that are damaged are repaired from tree.tsv, or left out;
    each is told of.
    """
    loaded = session.load()
    configure_logs(loaded)
    with open_ledger(loaded) as ledger:
        made = import_run(
            ledger,
            loaded.home,
            directory,
            name,
            task=task,
            direction=None if direction is None else Direction(direction),
            actor="cli",
        )
    report = made.report.to_dict()
    if not session.json:
        _tell(report["remarks"])
    told = ", ".join(f"{report[each]} {each}" for each in ("repaired", "rejected", "mismatches"))
    confirm(
        session,
        {"run": made.run_id, "name": name, **report},
        f"Run {made.run_id} has {report['rows']} trials and {report['commits']} commits ({told}).",
    )


@command(
    examples=["ratchet research export 3 exported", "ratchet research export tides exported --force"],
    see=["research import"],
)
@research_argument
@click.argument("directory", metavar="DIR", type=_directory, help="The folder to write.")
@click.option("--force", is_flag=True, help="Replace its files in a directory that is not empty.")
def export(session: CliSession, wanted: str, directory: Path, force: bool) -> None:
    """Write a run in the files of the original system.

    These are results.tsv, tree.tsv, best.json, LEADERBOARD.md and KNOWLEDGE.md.
    """
    with existing_ledger(session) as ledger:
        with ledger.read() as tx:
            run = get_run(tx, find_research(tx, wanted))
        task = _task(session, ledger, run)
        count = export_run(ledger, run.id, directory, task=task, overwrite=force)
    document = {"run": run.id, "path": str(directory), "trials": count}
    confirm(session, document, f"{count} trials of run {run.id} are written to {directory}.")


def _task(session: CliSession, ledger: Ledger, run: Run) -> TaskAdapter | None:
    """The task of a run of our own: it tells the columns. Rows that outlived their task are still worth writing."""
    if "imported" in run.spec:
        return None
    try:
        return task_of(ledger, session.load().home, run)
    except RatchetError as error:
        note(f"Without its task, the columns are what was measured at the baseline: {error}")
        return None


def _tell(remarks: list[str]) -> None:
    for each in remarks[:_REMARKS]:
        note(one_line(each))
    if len(remarks) > _REMARKS:
        note(f"… and {len(remarks) - _REMARKS} more; --json has all of them")
