"""`ratchet runs …`"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.numbers import COUNT, ID
from ratchet.cli.opening import existing_ledger, existing_runtime
from ratchet.cli.output import confirm, show_list, show_one
from ratchet.cli.records import record
from ratchet.cli.times import age, span
from ratchet.cli.words import compact, cost_words
from ratchet.kernel import RunStatus, Usage
from ratchet.ledger.artifacts import of_run
from ratchet.ledger.runs import get_run, list_attempts, list_runs, list_steps

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Attempt, Run, Step
    from ratchet.runtime import Runtime

_run_argument = click.argument("run_id", metavar="RUN", type=ID, help="The number of a run.")


@command(
    "list",
    examples=[
        "ratchet runs list",
        "ratchet runs list --status blocked",
        "ratchet runs list --kind research -n 5 --json",
    ],
    see=["runs show"],
)
@click.option("--kind", metavar="KIND", help="Only of this kind: protocol, research, workflow, agent, …")
@click.option(
    "--status", type=click.Choice([str(status) for status in RunStatus]), help="Only in this status."
)
@click.option("--limit", "-n", type=COUNT, default=50, show_default=True, help="At most so many.")
@click.option("--before", type=ID, metavar="ID", help="Only older than this run: the next page.")
@click.pass_obj
def list_(session: Session, /, status: str | None, **wanted: Any) -> None:
    """List runs, newest first.

    A run is one execution of anything: a protocol, research, a workflow, a change of an agent.
    """
    with existing_ledger(session) as ledger, ledger.read() as tx:
        found = list_runs(tx, status=RunStatus(status) if status else None, **wanted)
    show_list(
        session,
        found,
        {
            "run": lambda run: run.id,
            "kind": lambda run: run.kind,
            "name": lambda run: run.name,
            "status": lambda run: run.status,
            "simulated": _simulated,
            "created": lambda run: age(run.created_at),
            "took": lambda run: span(run.created_at, run.ended_at),
            "reason": lambda run: run.reason,
        },
        record=record,
        empty="No such runs. `ratchet demo` makes one.",
    )


@command(
    examples=["ratchet runs show 7", "ratchet runs show 7 --json | jq '.steps[].status'"],
    see=["events", "runs list"],
)
@_run_argument
@click.pass_obj
def show(session: Session, run_id: int) -> None:
    """Show one run with its steps.

    Its status, its reason if it stands, what it has used, and each step with its attempts. With --json everything that
    is recorded of it.
    """
    # Loaded here: it needs tables that the list does not.
    from ratchet.ledger.usage import total

    with existing_ledger(session) as ledger, ledger.read() as tx:
        run = get_run(tx, run_id)
        steps = [(step, list_attempts(tx, step.id)) for step in list_steps(tx, run_id)]
        used = total(tx, "run", run_id)
        artifacts = of_run(tx, run_id)
    document = {
        **record(run),
        "usage": {**asdict(used), "cost_usd": used.whole_cost_usd},
        "steps": [{**record(step), "attempts": [record(each) for each in tries]} for step, tries in steps],
        "artifacts": [record(each) for each in artifacts],
    }
    show_one(session, document, {**_fields(run), "used": _used(used), "artifacts": len(artifacts) or None})
    if steps and not session.json:
        print()
        _print_steps(steps)


@command(
    examples=["ratchet runs pause 7", 'ratchet runs pause 7 --reason "the machine is needed"'],
    see=["runs resume", "runs cancel"],
)
@_run_argument
@click.option("--reason", default="paused on request", show_default=True, help="Why, for the record.")
@click.pass_obj
def pause(session: Session, run_id: int, reason: str) -> None:
    """Pause a run; what it has recorded stays.

    Whoever works on it is asked to stop. A run that has ended cannot be paused.
    """
    from ratchet.runtime import pause_run

    with existing_runtime(session) as runtime:
        with runtime.ledger.write(actor="cli") as tx:
            pause_run(tx, runtime, run_id, reason=reason)
        _confirm(session, runtime, run_id, f"is paused; `ratchet runs resume {run_id}` goes on")


@command(examples=["ratchet runs resume 7"], see=["runs show", "worker"])
@_run_argument
@click.pass_obj
def resume(session: Session, run_id: int) -> None:
    """Go on with a paused or blocked run.

    It is handed to a worker: `ratchet worker` or `ratchet serve` does it.
    """
    from ratchet.runtime import resume_run

    with existing_runtime(session) as runtime:
        with runtime.ledger.write(actor="cli") as tx:
            resume_run(tx, runtime, run_id)
        _confirm(session, runtime, run_id, "goes on")


@command(
    examples=["ratchet runs cancel 7", 'ratchet runs cancel 7 --reason "not needed any more"'],
    see=["runs pause"],
)
@_run_argument
@click.option("--reason", default="cancelled on request", show_default=True, help="Why, for the record.")
@click.pass_obj
def cancel(session: Session, run_id: int, reason: str) -> None:
    """Cancel a run for good.

    Whoever works on it is asked to stop. It cannot be resumed; what is recorded stays.
    """
    from ratchet.runtime import cancel_run

    with existing_runtime(session) as runtime:
        with runtime.ledger.write(actor="cli") as tx:
            cancel_run(tx, runtime, run_id, reason=reason)
        _confirm(session, runtime, run_id, "is cancelled")


def _confirm(session: Session, runtime: Runtime, run_id: int, told: str) -> None:
    with runtime.ledger.read() as tx:
        confirm(session, record(get_run(tx, run_id)), f"Run {run_id} {told}.")


def _fields(run: Run) -> dict[str, object]:
    return {
        "run": run.id,
        "kind": run.kind,
        "name": run.name,
        "project": run.project_id,
        "status": run.status,
        "reason": run.reason,
        "simulated": _simulated(run),
        "created": age(run.created_at),
        "took": span(run.created_at, run.ended_at),
        "spec": compact(run.spec),
        "result": compact(run.result),
    }


def _print_steps(steps: list[tuple[Step, list[Attempt]]]) -> None:
    from ratchet.cli.tables import print_table

    print_table(
        steps,
        {
            "step": lambda each: each[0].id,
            "name": lambda each: each[0].name,
            "status": lambda each: each[0].status,
            "attempts": lambda each: len(each[1]),
            "took": lambda each: _took(each[1]),
            "reason": lambda each: each[0].reason,
        },
    )


def _took(tries: list[Attempt]) -> str | None:
    """How long the last attempt took, or has taken."""
    return span(tries[-1].started_at, tries[-1].ended_at) if tries else None


def _simulated(run: Run) -> str | None:
    """A recording is marked wherever a run is shown."""
    if run.used_recording:
        return "used a recording"
    return "allowed" if run.simulated else None


def _used(used: Usage) -> str | None:
    if used == Usage():
        return None
    return f"{used.tokens} tokens, {cost_words(used)}, {used.wall_seconds:.1f} s, {used.trials} trials"
