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
from ratchet.cli.operation import CliCall, calling, taking
from ratchet.cli.output import confirm, note, print_document, print_foreign, said, show_page
from ratchet.cli.params import detach_option, research_argument
from ratchet.cli.words import compact, lines, one_line
from ratchet.kernel import Misuse, RatchetError, RunStatus, dollars
from ratchet.ledger import Run
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
    from ratchet.ledger import Event, Ledger, Transaction
    from ratchet.operations import Operation
    from ratchet.research.views._status import Comparison
    from ratchet.research.views.text import ResearchView
    from ratchet.research.views.trials import Verified


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
@taking(of_research.verify, "certificate")
@click.option("--remeasure", "again", is_flag=True, help="Measure both commits again, with fresh seeds.")
@detach_option
def verify(session: CliSession, certificate: str, again: bool, detach: bool) -> int | None:
    """Check the certificate of a kept trial: its decision, its signature, its row in the ledger.

    The decision is made again from the measurements in it, the signature must be that of this home's key, and commit,
    evaluator and environment those of the trial's row. Exits with 1 if anything speaks against it.

    To measure again is a run of its own: Ctrl-C pauses it, and with --detach a worker does it.
    """
    from ratchet.research.verification import typed_certificate

    with calling(session) as call:
        given = typed_certificate(call, certificate)
        found: Verified | Run = (
            of_research.remeasure(call, given) if again and detach else of_research.verify(call, given)
        )
    if isinstance(found, Run):
        confirm(session, record(found), f"Run {found.id} waits for a worker.")
        return None
    shown = record(found)
    if again and found.run is not None:
        with foreground(session.load()) as here:
            run = of_research.remeasure(CliCall(session, here.ledger, here.runtime), given)
            ended = here.work_on(run.id, lambda _event: None, quiet=session.json)
        if here.interrupted:
            note(f"Resume it: ratchet runs resume {run.id}")
            return INTERRUPTED
        if ended.status is not RunStatus.COMPLETED:
            raise RatchetError(f"run {run.id} is {ended.status}: {ended.reason}")
        shown = ended.result
    if session.json:
        print_document(shown)
    else:
        for problem in shown["problems"]:
            print(f"- {problem}")
        if shown["again"] is not None:
            print(f"Measured again: {shown['again']}")
        name = certificate if shown["run"] is None else f"trial {shown['exp_id']} of run {shown['run']}"
        print(f"The certificate of {name} {'holds' if shown['holds'] else 'does not hold'}.")
    return None if shown["holds"] else 1


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


@command(
    examples=[
        "ratchet research compare --landscape rugged --trials 200 --seeds 20",
        "ratchet research compare --recorded 3 --strategies greedy,islands",
        "ratchet research compare circle_packing --engine llm --strategies greedy --trials 50 --seeds 3",
    ],
    see=["research run", "research report"],
)
@taking(
    of_research.compare,
    *("task", "landscape", "recorded", "trials", "seeds", "noise", "engine", "model", "parallel"),
)
@click.option(
    "--strategies",
    metavar="A,B",
    default="greedy,islands,clade,adaptive",
    show_default=True,
    help="The arms; best_of_n and sequential are always among them.",
)
@detach_option
def compare(session: CliSession, strategies: str, detach: bool, **given: Any) -> int | None:
    """Compare strategies at equal budgets, and with the plain baselines.

    On a landscape, or with a recorded run, the model is made up: strategies are compared for nothing. On a task real
    runs are held, one of each arm after the other; typed again after an interruption, it continues with those that are
    left. With --detach it begins those of an installed task, and compares what has ended until now. Shows bands and no
    lines: the middle of an arm's runs, and where eight of ten are.
    """
    given["strategies"] = [each.strip() for each in strategies.split(",") if each.strip()]
    task, landscape = given["task"], given["landscape"]
    real = tuple(given[name] for name in ("engine", "model", "parallel"))
    others = (landscape, given["recorded"], given["strategies"])
    arms = of_research.compared_arms(task, *others, real=real, noise=given["noise"])
    if task is not None and not detach:
        return _compare_runs(session, arms, **given)
    if landscape is not None:
        # Without a home: nothing is read.
        amounts = {name: given[name] for name in ("trials", "seeds", "noise")}
        found = of_research.simulated(contextlib.nullcontext, arms, landscape, None, **amounts)
    else:
        with calling(session) as call:
            found = of_research.compare(call, **given)
    _show_comparison(session, found)
    return None


def _show_comparison(session: CliSession, found: Comparison) -> None:
    if session.json:
        print_document(record(found))
        return
    from ratchet.cli.tables import print_markdown

    print_markdown(found.to_markdown())
    if found.left:
        note(f"{found.left} runs have not ended yet; ask again with the same words.")


def _compare_runs(session: CliSession, arms: list[str], *, task: str, seeds: int, **given: Any) -> int | None:
    from ratchet.research.start import arms_of, begin_arm, check_research, compare_runs

    chosen = {name: given[name] for name in ("trials", "engine", "model", "parallel")}
    wanted = arms_of(task, arms, seeds, **chosen)
    runs = []
    with foreground(session.load()) as here:
        here.check(partial(check_research, here.runtime, wanted[0]), detach=False)
        for each in wanted:
            run_id = begin_arm(here.runtime, each, actor="cli")
            note(f"{each.name}: run {run_id}")
            ended = here.work_on(run_id, lambda _event: None, quiet=True)
            if here.interrupted:
                return INTERRUPTED
            if ended.status is not RunStatus.COMPLETED:
                note(f"Run {run_id} is {ended.status}: {ended.reason}")
                return 1
            runs.append(run_id)
        with here.ledger.read() as tx:
            found = compare_runs(tx, wanted, runs)
    _show_comparison(session, found)
    return None
