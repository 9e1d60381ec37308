"""The operations on research runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from ratchet.ledger import Run
from ratchet.ledger.research import find_research
from ratchet.ledger.runs import get_run, list_runs
from ratchet.operations import Listing, Param, Tool, Window, operation
from ratchet.runtime.call import Call
from ratchet.runtime.operations.runs import StatusFilter

RunName = Annotated[str, Param("The number or the name of a run; of several the newest.", metavar="RUN")]


@operation("research runs", "GET /research", tool=Tool("list_research", "List research runs"))
def list_(call: Call, window: Window, status: StatusFilter = None) -> Listing[Run]:
    """List research runs, newest first."""
    with call.read() as tx:
        found = list_runs(tx, kind="research", status=status, before=window.before, limit=window.one_more)
    return window.cut(found)


@operation(
    "research pause",
    "POST /research/{run}/pause",
    tool=Tool("pause_research", "Pause research", repeatable=True),
    examples=["ratchet research pause 3"],
    see=["research resume", "research stop"],
    done="Run {it.id} is paused",
)
def pause(call: Call, run: RunName) -> Run:
    """Pause a research run; trials in flight are measured again when it is resumed.

    Its worker is asked to stop. Pausing it again changes nothing.
    """
    from ratchet.runtime import pause_run

    with call.write() as tx:
        run_id = find_research(tx, run)
        pause_run(tx, call.runtime, run_id)
        return get_run(tx, run_id)


@operation(
    "research resume",
    "POST /research/{run}/resume",
    tool=Tool("resume_research", "Resume research", outside=True, queues=True),
    done="Run {it.id} is resumed",
)
def resume(call: Call, run: RunName) -> Run:
    """Resume a paused or blocked research run. What was measured is not measured again.

    The engines are looked at first; if one cannot work now, the run stays as it is.
    """
    from ratchet.engines.preflight import check_for_worker
    from ratchet.research.start import check_resumed

    with call.read() as tx:
        run_id = find_research(tx, run)
    check_for_worker(call.runtime, partial(check_resumed, call.runtime, run_id))
    return begin_again(call, run_id)


def begin_again(call: Call, run_id: int) -> Run:
    """`resume`, where the engines were looked at."""
    from ratchet.runtime import resume_run

    with call.write() as tx:
        resume_run(tx, call.runtime, run_id)
        return get_run(tx, run_id)


@operation(
    "research stop",
    "POST /research/{run}/stop",
    tool=Tool("stop_research", "Stop research", destructive=True, repeatable=True),
    examples=["ratchet research stop 3", "ratchet research stop tides"],
    see=["research pause", "research report"],
    done="Run {it.id} has ended",
)
def stop(call: Call, run: RunName) -> Run:
    """End a research run for good; what was kept stays.

    It cannot be resumed. Its trials, its best recipe and its report can still be looked at. Stopping it again changes
    nothing.
    """
    from ratchet.runtime import cancel_run

    with call.write() as tx:
        run_id = find_research(tx, run)
        cancel_run(tx, call.runtime, run_id, reason="stopped on request")
        return get_run(tx, run_id)


OPERATIONS = (list_, pause, resume, stop)
