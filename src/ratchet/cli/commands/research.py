"""`ratchet research run`, `resume`, `status` and the views of a run; the others are made from operations"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED, Foreground, foreground
from ratchet.cli.opening import existing_ledger
from ratchet.cli.operation import CliCall, taking
from ratchet.cli.output import confirm, note, print_document, print_foreign, said, show_page
from ratchet.cli.params import detach_option, research_argument
from ratchet.cli.words import compact, lines, one_line
from ratchet.kernel import Misuse, RunStatus, dollars
from ratchet.ledger.research import find_research
from ratchet.ledger.runs import get_run
from ratchet.ledger.trials import get_trial
from ratchet.operations import record
from ratchet.research import operations as of_research
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
from ratchet.research.views.text import trials as trials_in_words
from ratchet.runtime.runs import follow_run

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.ledger import Event, Ledger, Run, Transaction
    from ratchet.operations import Operation
    from ratchet.research.views.text import ResearchView


_DRAW_SECONDS = 0.25
# After anything but a trial.
_DRAW_REST_SECONDS = 1.0


@contextlib.contextmanager
def progress(ledger: Ledger, run_id: int, *, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """What is to be called with each event of the run."""
    if quiet:
        yield lambda _event: None
    elif sys.stdout.isatty():
        with _picture(ledger, run_id) as hear:
            yield hear
    else:
        yield _line


def _line(event: Event) -> None:
    if event.type in ("trial.keep", "trial.baseline"):
        data = event.data
        print(f"{data['exp_id']} {event.type.removeprefix('trial.')} {data['score']:.6g}", flush=True)
        said()
    elif event.type in ("run.blocked", "run.failed"):
        print(f"{event.type}: {one_line(event.message or '')}", flush=True)
        said()


@contextlib.contextmanager
def _picture(ledger: Ledger, run_id: int) -> Iterator[Callable[[Event], None]]:
    from rich.live import Live

    drawn = 0.0
    with Live(auto_refresh=False, transient=True) as live:

        def hear(event: Event) -> None:
            nonlocal drawn
            pause = _DRAW_SECONDS if event.type.startswith("trial.") else _DRAW_REST_SECONDS
            if time.monotonic() - drawn > pause:
                drawn = time.monotonic()
                with ledger.read() as tx:
                    live.update(draw_live(read_live(tx, run_id)), refresh=True)

        yield hear


@command(
    examples=[
        "ratchet research run circle_packing --engine search --trials 200",
        "ratchet research run ./tides --engine codex --cost-usd 5 --hours 2",
        "ratchet research run ./tides --name tides-again --specialists shape,order --detach",
    ],
    see=["research check", "research status", "research resume"],
)
@click.argument("task", metavar="TASK", help="A folder with a task.toml, or the name of an installed task.")
@taking(
    of_research.start,
    *("variant", "name", "engine", "model", "strategy", "parallel", "seed", "trials", "hours"),
    *("hours_without_keep", "tokens", "cost_usd", "simulated"),
)
@click.option("--specialists", metavar="A,B", help="Only these specialists of the task; all if not given.")
@click.option(
    "--keep-policy",
    type=click.Choice(of_research.POLICIES),
    help="How a trial is kept; the task's own if not given.",
)
@click.option("--no-lineage", is_flag=True, help="Tell specialists nothing of earlier trials.")
@click.option(
    "--baseline-score",
    type=float,
    metavar="SCORE",
    help="The score of the recipe as it is, instead of measuring it.",
)
@detach_option
def run(
    session: CliSession, /, specialists: str | None, no_lineage: bool, detach: bool, **options: Any
) -> int | None:
    """Improve a recipe under measurement until a stop is reached.

    Specialists propose changes of the recipe; each trial runs apart and is measured by the task's evaluator; what is
    better is kept. Stops of the task hold beside those that are given here. Ctrl-C pauses the run; `ratchet research
    resume RUN` resumes it, also after a crash. Exits with 0 when a stop was reached, 1 when the run failed or is
    blocked.
    """
    from ratchet.research.start import ResearchRequest, check_research, start_research

    named = tuple(name.strip() for name in (specialists or "").split(",") if name.strip())
    wanted = ResearchRequest(specialists=named, lineage=not no_lineage, **options)
    with foreground(session.load()) as here:
        here.check(partial(check_research, here.runtime, wanted), detach=detach)
        run_id = start_research(here.runtime, wanted, actor="cli")
        money = here.runtime.settings.budgets.run.cost_usd
        if money is not None and wanted.tokens is not None and wanted.cost_usd is None:
            note(
                f"The budget of this run is {wanted.tokens:,} tokens, in place of the {dollars(money)} of "
                "budgets.run.cost_usd."
            )
        if detach:
            confirm(session, {"run": run_id}, f"Run {run_id} waits for a worker.")
            return None
        return _carry(session, here, run_id)


@command(examples=["ratchet research resume 3", "ratchet research resume tides"], see=["research status"])
@research_argument
def resume(session: CliSession, wanted: str) -> int | None:
    """Resume a run that was paused, blocked or cut off, here and now.

    What was measured is not measured again. Exits with 0 when a stop was reached, 1 otherwise.
    """
    from ratchet.research.start import check_resumed

    with foreground(session.load()) as here:
        with here.ledger.read() as tx:
            found = get_run(tx, find_research(tx, wanted))
        # One that was cut off still counts as running: it only needs a worker.
        if found.status.stands:
            here.check(partial(check_resumed, here.runtime, found.id), detach=False)
            of_research.begin_again(CliCall(session, here.ledger, here.runtime), found.id)
        return _carry(session, here, found.id)


def _carry(session: CliSession, here: Foreground, run_id: int) -> int | None:
    with progress(here.ledger, run_id, quiet=session.json) as hear:
        ended = here.work_on(run_id, hear, quiet=session.json)
    with here.ledger.read() as tx:
        document = status(tx, run_id)
    show_page(session, document, _print_end, ended, document)
    if here.interrupted:
        return INTERRUPTED
    return 0 if ended.status is RunStatus.COMPLETED else 1


def _print_end(run: Run, document: dict[str, Any]) -> None:
    best, baseline = document["best"], document["baseline"]
    if best is not None and baseline is not None:
        print(
            f"Run {run.id} is {run.status} after {trials_in_words(document['trials'])}: best {best['exp_id']} with "
            f"{document['score_field']} {best['score']:.6g}, baseline {baseline['score']:.6g}."
        )
    else:
        print(f"Run {run.id} is {run.status}.")
    if run.reason:
        print(lines(run.reason))
    stopped = (run.result or {}).get("stopped")
    if stopped and not stopped.endswith("made"):
        print(f"stopped: {stopped}")
    if run.status.stands and not run.status.final:
        note(f"Resume it: ratchet research resume {run.id}")
    note(f"Look at it: ratchet research status {run.id} · ratchet research report {run.id}")


@command(
    "status",
    examples=["ratchet research status 3", "ratchet research status tides --watch"],
    see=["research leaderboard", "research report", "events"],
)
@research_argument
@click.option("--watch", is_flag=True, help="Keep showing it until the run stops.")
def status_(session: CliSession, wanted: str, watch: bool) -> None:
    """Show the progress of a run: the best, the specialists, what is in flight.

    With --watch it keeps reporting what happens, whichever process does the work.
    """
    with existing_ledger(session) as ledger:
        with ledger.read() as tx:
            run_id = find_research(tx, wanted)
        if watch:
            with progress(ledger, run_id, quiet=session.json) as hear:
                follow_run(ledger, run_id, hear)
        _show_status(session, ledger, run_id)


def _show_status(session: CliSession, ledger: Ledger, run_id: int) -> None:
    with ledger.read() as tx:
        if session.json:
            print_document(status(tx, run_id))
        elif sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(draw_live(read_live(tx, run_id), whole=True))
        else:
            print(live_text(read_live(tx, run_id)))


def _view(operation: Operation[..., Any], read: Callable[[Transaction, int], ResearchView]) -> click.Command:
    """The command of an operation that shows a run: as Markdown, or as JSON."""
    name = operation.name.rpartition(" ")[2]
    examples = [f"ratchet research {name} 3", f"ratchet research {name} circle_packing --json"]

    @command(name, help=operation.help, examples=examples, see=["research status", "research report"])
    @research_argument
    def show(session: CliSession, wanted: str) -> None:
        with existing_ledger(session) as ledger, ledger.read() as tx:
            found = read(tx, find_research(tx, wanted))
        _print_view(session, found)

    return show


def _print_view(session: CliSession, found: ResearchView) -> None:
    if session.json:
        print_document(found.to_dict())
    else:
        from ratchet.cli.tables import print_markdown

        print_markdown(found.to_markdown())


leaderboard_ = _view(of_research.leaderboard, leaderboard_of)
knowledge_ = _view(of_research.knowledge, knowledge)
activity_ = _view(of_research.activity, recent_activity)
misses_ = _view(of_research.misses, near_misses)
yields_ = _view(of_research.yields, yields)
cost_ = _view(of_research.cost, cost)
lessons_ = _view(of_research.lessons, insights)


@command(
    "tree",
    examples=["ratchet research tree 3", "ratchet research tree 3 075"],
    see=["research trial", "research leaderboard"],
)
@research_argument
@click.argument(
    "exp", metavar="[TRIAL]", required=False, help="Its number, such as 075; the best one if not given."
)
def tree_(session: CliSession, wanted: str, exp: str | None) -> None:
    """Show the ancestors and descendants of a trial; of the best, if none is named."""
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = tree(tx, find_research(tx, wanted), None if exp is None else trial_number(exp))
    _print_view(session, found)


@command(
    examples=["ratchet research trial 3 075", "ratchet research trial 3 075 --diff | git apply"],
    see=["research tree", "research leaderboard"],
)
@research_argument
@click.argument("exp", metavar="TRIAL", help="Its number, such as 075.")
@click.option("--diff", "with_diff", is_flag=True, help="Show how it differs from its parent.")
def trial(session: CliSession, wanted: str, exp: str, with_diff: bool) -> None:
    """Show one trial: its measurements, its certificate, its diff.

    The certificate names what was measured, by which evaluator, on which commit; it is checked when it is shown.
    """
    loaded = session.load()
    with existing_ledger(session) as ledger, ledger.read() as tx:
        run_id = find_research(tx, wanted)
        found = get_trial(tx, run_id, trial_number(exp))
        shown = record(whole(found, evidence_of(ledger, found)))
    if with_diff:
        shown["diff"] = read_diff(research_directory(loaded.home, run_id), found)
    if session.json:
        print_document(shown)
    elif with_diff:
        print_foreign(shown["diff"], end="")
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
    examples=["ratchet research verify 3/075", "ratchet research verify certificate.json --remeasure"],
    see=["research trial"],
)
@click.argument(
    "certificate", metavar="CERT", help="A file with a certificate or a trial, or RUN/TRIAL, such as 3/075."
)
@click.option("--remeasure", "again", is_flag=True, help="Measure both commits again, with fresh seeds.")
def verify(session: CliSession, certificate: str, again: bool) -> None:
    """Check the certificate of a kept trial: its decision, its signature, its row in the ledger.

    The decision is made again from the measurements in it, the signature must be that of this home's key, and commit,
    evaluator and environment those of the trial's row. Exits with 1 if anything speaks against it.
    """
    import asyncio

    from ratchet.research.verification import find_certificate, remeasure, verify_certificate

    loaded = session.load()
    with existing_ledger(session) as ledger:
        content = find_certificate(ledger, certificate)
        found = verify_certificate(ledger, loaded.home, content)
        if again and found.run is not None:
            found = asyncio.run(remeasure(ledger, loaded.home, content, found))
    if session.json:
        print_document({**record(found), "holds": found.holds})
    else:
        for problem in found.problems:
            print(f"- {problem}")
        if found.again is not None:
            print(f"Measured again: {found.again}")
        name = certificate if found.run is None else f"trial {found.exp_id} of run {found.run}"
        print(f"The certificate of {name} {'holds' if found.holds else 'does not hold'}.")
    if not found.holds:
        raise SystemExit(1)


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
def report_(session: CliSession, wanted: str, out: Path | None) -> None:
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
