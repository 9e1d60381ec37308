"""`ratchet research run` and `resume`"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED, Foreground, foreground
from ratchet.cli.operation import CliCall
from ratchet.cli.output import confirm, note, print_document
from ratchet.cli.params import COUNT, Amount, Number, research_argument
from ratchet.cli.research_progress import progress
from ratchet.cli.words import lines
from ratchet.kernel import RunStatus, dollars
from ratchet.ledger.research import find_research
from ratchet.ledger.runs import get_run
from ratchet.research import operations
from ratchet.research.start import (
    LARGEST_SEED,
    POLICIES,
    ResearchRequest,
    check_research,
    check_resumed,
    start_research,
)
from ratchet.research.views import status
from ratchet.research.views.text import trials

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Run

_POSITIVE = Amount()
_TOKENS = Number(1, 10**15)
_SEED = Number(0, LARGEST_SEED)


@command(
    examples=[
        "ratchet research run circle_packing --engine search --trials 200",
        "ratchet research run ./tides --engine codex --cost-usd 5 --hours 2",
        "ratchet research run ./tides --name tides-again --specialists shape,order --detach",
    ],
    see=["research check", "research status", "research resume"],
)
@click.argument("task", metavar="TASK", help="A folder with a task.toml, or the name of an installed task.")
@click.option("--name", metavar="NAME", help="What to call the run; the task's name if not given.")
@click.option(
    "--engine", metavar="ENGINE", help="Who proposes, for every specialist; the task's own if not given."
)
@click.option(
    "--model", metavar="MODEL", help="The model, for every specialist; the task's own if not given."
)
@click.option("--variant", metavar="VARIANT", help="A variant of the task; the task itself if not given.")
@click.option("--specialists", metavar="A,B", help="Only these specialists of the task; all if not given.")
@click.option("--trials", metavar="N", type=COUNT, help="Stop after so many trials.")
@click.option("--hours", metavar="HOURS", type=_POSITIVE, help="Stop after so many hours of work.")
@click.option(
    "--hours-without-keep", metavar="HOURS", type=_POSITIVE, help="Stop when nothing was kept for so long."
)
@click.option("--tokens", metavar="N", type=_TOKENS, help="Stop when so many tokens are used.")
@click.option("--cost-usd", metavar="USD", type=_POSITIVE, help="Stop when so much money is spent.")
@click.option(
    "--keep-policy", type=click.Choice(POLICIES), help="How a trial is kept; the task's own if not given."
)
@click.option("--no-lineage", is_flag=True, help="Tell specialists nothing of earlier trials.")
@click.option(
    "--parallel",
    type=Number(1, 1000),
    metavar="N",
    help="Sessions at once; as many as there are slots if not given.",
)
@click.option("--seed", type=_SEED, default=0, show_default=True, metavar="N", help="Where a search begins.")
@click.option(
    "--baseline-score",
    type=float,
    metavar="SCORE",
    help="The score of the recipe as it is, instead of measuring it.",
)
@click.option("--simulated", is_flag=True, help="Allow recorded sessions; the run is marked as a simulation.")
@click.option("--detach", is_flag=True, help="Leave the work to `ratchet worker` or `ratchet serve`.")
@click.pass_obj
def run(
    session: Session, /, specialists: str | None, no_lineage: bool, detach: bool, **options: Any
) -> int | None:
    """Improve a recipe under measurement until a stop is reached.

    Specialists propose changes of the recipe; each trial runs apart and is measured by the task's evaluator; what is
    better is kept. Stops of the task hold beside those that are given here. Ctrl-C pauses the run; `ratchet research
    resume RUN` goes on, also after a crash. Exits with 0 when a stop was reached, 1 when the run came to nothing or is
    blocked.
    """
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
@click.pass_obj
def resume(session: Session, wanted: str) -> int | None:
    """Go on with a run that was paused, blocked or cut off, here and now.

    What was measured is not measured again. Exits with 0 when a stop was reached, 1 otherwise.
    """
    with foreground(session.load()) as here:
        with here.ledger.read() as tx:
            found = get_run(tx, find_research(tx, wanted))
        # One that was cut off still counts as running: it only needs a worker.
        if found.status.stands:
            here.check(partial(check_resumed, here.runtime, found.id), detach=False)
            operations.begin_again(CliCall(session, here.ledger, here.runtime), found.id)
        return _carry(session, here, found.id)


def _carry(session: Session, here: Foreground, run_id: int) -> int | None:
    with progress(here.ledger, run_id, quiet=session.json) as hear:
        ended = here.carry(run_id, hear, quiet=session.json)
    with here.ledger.read() as tx:
        document = status(tx, run_id)
    if session.json:
        print_document(document)
    else:
        _tell(ended, document)
    if here.interrupted:
        return INTERRUPTED
    return 0 if ended.status is RunStatus.COMPLETED else 1


def _tell(run: Run, document: dict[str, Any]) -> None:
    best, baseline = document["best"], document["baseline"]
    if best is not None and baseline is not None:
        print(
            f"Run {run.id} is {run.status} after {trials(document['trials'])}: best {best['exp_id']} with "
            f"{document['score_field']} {best['score']:.6g}, baseline {baseline['score']:.6g}."
        )
    else:
        print(f"Run {run.id} is {run.status}.")
    if run.reason:
        print(lines(run.reason))
    stopped = (run.result or {}).get("stopped")
    if stopped and not stopped.endswith("made"):
        print(f"stopped: {stopped}")
    note(f"Look at it: ratchet research status {run.id} · ratchet research report {run.id}")
