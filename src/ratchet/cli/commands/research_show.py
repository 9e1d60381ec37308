"""`ratchet research status`, `list` and the views of a run"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import follow_run
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import confirm, note, print_document, show_list
from ratchet.cli.params import COUNT, ID, research_argument
from ratchet.cli.research_progress import progress
from ratchet.cli.words import age, compact, lines, span
from ratchet.kernel import Misuse
from ratchet.ledger.research import find_research
from ratchet.ledger.runs import list_runs
from ratchet.ledger.trials import get_trial
from ratchet.operations import record
from ratchet.research.campaign import research_directory
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.views import (
    cost,
    draw_live,
    evidence_of,
    full_report,
    insights,
    knowledge,
    leaderboard_of,
    live_text,
    near_misses,
    read_diff,
    read_live,
    recent_activity,
    status,
    tree,
    whole,
    yields,
)

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Ledger, Transaction


class View(Protocol):
    def to_dict(self) -> Any: ...

    def to_markdown(self) -> str: ...


@command(
    "list", examples=["ratchet research list", "ratchet research list -n 5 --json"], see=["research status"]
)
@click.option("--limit", "-n", type=COUNT, default=50, show_default=True, help="At most so many.")
@click.option("--before", type=ID, metavar="ID", help="Only older than this run: the next page.")
@click.pass_obj
def list_(session: Session, limit: int, before: int | None) -> None:
    """List research runs, newest first."""
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_runs(tx, kind="research", limit=limit, before=before)
    show_list(
        session,
        found,
        {
            "run": lambda run: run.id,
            "name": lambda run: run.name,
            "status": lambda run: run.status,
            "created": lambda run: age(run.created_at),
            "took": lambda run: span(run.created_at, run.ended_at),
            "reason": lambda run: run.reason,
        },
        record=record,
        empty="No research yet. `ratchet research run circle_packing --engine search --trials 200` makes some.",
    )


@command(
    "status",
    examples=["ratchet research status 3", "ratchet research status tides --watch"],
    see=["research leaderboard", "research report", "events"],
)
@research_argument
@click.option("--watch", is_flag=True, help="Go on showing it until the run stands still.")
@click.pass_obj
def status_(session: Session, wanted: str, watch: bool) -> None:
    """Show where a run stands: the best, the specialists, what is in flight.

    With --watch it goes on telling what happens, whoever does the work.
    """
    with existing_ledger(session) as ledger:
        with ledger.read() as tx:
            run_id = find_research(tx, wanted)
        if watch:
            with progress(ledger, run_id, quiet=session.json) as hear:
                follow_run(ledger, run_id, hear)
        _show_status(session, ledger, run_id)


def _show_status(session: Session, ledger: Ledger, run_id: int) -> None:
    with ledger.read() as tx:
        if session.json:
            print_document(status(tx, run_id))
        elif sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(draw_live(read_live(tx, run_id), whole=True))
        else:
            print(live_text(read_live(tx, run_id)))


def _view(name: str, help: str, read: Callable[[Transaction, int], View]) -> click.Command:
    """A command that prints one view of a run: as Markdown, or as JSON."""
    examples = [f"ratchet research {name} 3", f"ratchet research {name} circle_packing --json"]

    @command(name, help=help, examples=examples, see=["research status", "research report"])
    @research_argument
    @click.pass_obj
    def show(session: Session, wanted: str) -> None:
        with existing_ledger(session) as ledger, ledger.read() as tx:
            found = read(tx, find_research(tx, wanted))
        if session.json:
            print_document(found.to_dict())
        else:
            from ratchet.cli.tables import print_markdown

            print_markdown(found.to_markdown())

    return show


leaderboard_ = _view("leaderboard", "Show what was kept, the best first.", leaderboard_of)
knowledge_ = _view("knowledge", "Show the lineage of the best, what happened last, and lessons.", knowledge)
activity_ = _view("activity", "Show the last trials.", recent_activity)
misses_ = _view("misses", "Show what was nearly kept, and why it was not.", near_misses)
yields_ = _view("yield", "Show what each specialist has brought.", yields)
cost_ = _view("cost", "Show what a run has cost.", cost)
lessons_ = _view("lessons", "Show what specialists have learned.", insights)


@command(
    "tree",
    examples=["ratchet research tree 3", "ratchet research tree 3 075"],
    see=["research trial", "research leaderboard"],
)
@research_argument
@click.argument(
    "exp", metavar="[TRIAL]", required=False, help="Its number, such as 075; the best one if not given."
)
@click.pass_obj
def tree_(session: Session, wanted: str, exp: str | None) -> None:
    """Show where a trial came from and what came of it; the best, if none is named."""
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = tree(tx, find_research(tx, wanted), None if exp is None else trial_number(exp))
    if session.json:
        print_document(found.to_dict())
    else:
        from ratchet.cli.tables import print_markdown

        print_markdown(found.to_markdown())


@command(
    examples=["ratchet research trial 3 075", "ratchet research trial 3 075 --diff | git apply"],
    see=["research tree", "research leaderboard"],
)
@research_argument
@click.argument("exp", metavar="TRIAL", help="Its number, such as 075.")
@click.option("--diff", "with_diff", is_flag=True, help="Show how it differs from its parent.")
@click.pass_obj
def trial(session: Session, wanted: str, exp: str, with_diff: bool) -> None:
    """Show one trial: its measurements, its certificate, its diff.

    The certificate names what was measured, by which evaluator, on which commit; it is checked when it is shown.
    """
    loaded = session.load()
    with existing_ledger(session) as ledger, ledger.read() as tx:
        run_id = find_research(tx, wanted)
        found = get_trial(tx, run_id, trial_number(exp))
        shown = {**whole(found), **evidence_of(ledger, found)}
    if with_diff:
        shown["diff"] = read_diff(research_directory(loaded.home, run_id), found)
    if session.json:
        print_document(shown)
    elif with_diff:
        # A terminal would obey what a candidate has written; a program that reads a patch wants it as it is.
        print(f"{lines(shown['diff'])}\n" if sys.stdout.isatty() else shown["diff"], end="")
    else:
        _print_trial(shown)


def _print_trial(shown: dict[str, Any]) -> None:
    from ratchet.cli.tables import print_fields

    hidden = ("imported", "measurements", "certificate_content", "certificate_problems")
    fields = {name: value for name, value in shown.items() if name not in hidden and value not in (None, "")}
    print_fields({**fields, "measurements": compact(shown["measurements"])})
    if shown["certificate_problems"]:
        note(f"The certificate does not hold: {'; '.join(shown['certificate_problems'])}")


@command(
    "report",
    examples=["ratchet research report 3", "ratchet research report tides --out tides.html"],
    see=["research status"],
)
@research_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to; report.html beside the run if not given.",
)
@click.pass_obj
def report_(session: Session, wanted: str, out: Path | None) -> None:
    """Write a page with the scores, the tree and the evidence of a run, to be opened anywhere.

    It is one file of HTML that loads nothing else.
    """
    loaded = session.load()
    with existing_ledger(session) as ledger, ledger.read() as tx:
        run_id = find_research(tx, wanted)
        directory = research_directory(loaded.home, run_id)
        page = full_report(ledger, tx, run_id, directory)
    path = out or directory / "report.html"
    _write(path, page)
    confirm(session, {"run": run_id, "path": str(path)}, f"Written to {path}.")


def _write(path: Path, page: str) -> None:
    """The page at its place, whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise Misuse(
            f"{path} cannot be written: {error.strerror or error}", hint="name another place with --out"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
