"""Whether a task keeps what the contract asks of it: looked at, measured and talked about before money is spent."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.kernel import RatchetError
from ratchet.research.adapter import TaskAdapter
from ratchet.research.checking import baseline, description
from ratchet.research.checking.bench import new_place, open_bench
from ratchet.research.checking.case import Case, Look, Seen, failed
from ratchet.research.checking.finding import Finding, Grade, Hear, Part, Stopwatch
from ratchet.research.measurement import Unmeasured
from ratchet.research.tasks import check_task

_READ: Mapping[str, Look] = {
    "the task reads": description.reads,
    "the evaluator is out of reach": description.out_of_reach,
    "the evaluator's hash is stable": baseline.stable_hash,
    "preflight accepts the baseline": baseline.preflight,
    "the size limit has room": description.size,
    "the search engine": description.search,
    "prompts can be built": description.prompts,
    "tools answer": description.tools,
    "the baseline is measured": baseline.first_score,
}
_MEASURED: Mapping[str, Look] = {
    "noise over repeats": baseline.noise,
    "deterministic": baseline.deterministic,
    "held-out split": baseline.held_out,
    "limits have room": baseline.limits,
}
_OPENED = "the task can be pinned"


async def check_conformance(task: TaskAdapter, hear: Hear = lambda _finding: None) -> list[Finding]:
    """Look at everything that a run would need. Nothing of the task's folder is changed.

    What needs a score is left out when there is none.
    """
    found: list[Finding] = []

    def add(finding: Finding) -> None:
        found.append(finding)
        hear(finding)

    with new_place() as place:
        watch = Stopwatch()
        try:
            check_task(task)
            async with open_bench(task, place) as bench:
                case = Case(bench)
                for what, look in _READ.items():
                    add(await _finding(what, look, case))
                for what, look in _MEASURED.items() if case.samples else ():
                    add(await _finding(what, look, case))
        except RatchetError as error:
            add(_told(_OPENED, _failure(error), watch))
    return found


async def _finding(what: str, look: Look, case: Case) -> Finding:
    watch = Stopwatch()
    try:
        seen = await look(case)
    except Unmeasured as unmeasured:
        seen = failed(f"{unmeasured.status}: {unmeasured.reason}", "mend the recipe or the evaluator")
    except RatchetError as error:
        seen = _failure(error)
    except Exception as error:  # noqa: BLE001 - a task is foreign code, and whatever it raises is what was found
        seen = failed(f"{type(error).__name__}: {error}", "mend the task's own code")
    return _told(what, seen, watch)


def _failure(error: RatchetError) -> Seen:
    return Seen(str(error), Grade.FAILED, error.hint or "")


def _told(what: str, seen: Seen, watch: Stopwatch) -> Finding:
    return Finding(
        part=Part.TASK,
        what=what,
        grade=seen.grade,
        detail=seen.detail,
        hint=seen.hint,
        seconds=watch.seconds,
    )
