"""All checks of a task by its name, as a person asks for them."""

from __future__ import annotations

from pathlib import Path

from ratchet.kernel import Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.research.checking.attacks import check_attacks
from ratchet.research.checking.conformance import check_conformance
from ratchet.research.checking.faults import check_harness
from ratchet.research.checking.finding import Finding, Grade, Hear, Part, Stopwatch
from ratchet.research.tasks import find_task, task_names


async def check(
    reference: str,
    variant: str | None = None,
    *,
    attack: bool = False,
    real_home: Path | None = None,
    hear: Hear = lambda _finding: None,
) -> list[Finding]:
    """Check the task that `reference` names; with `attack` also what hostile recipes and faults come to.

    A task that cannot be read is a finding. Raises `Misuse` when there is no such task at all.
    """
    watch = Stopwatch()
    try:
        task = find_task(reference, variant)
    except Misuse as error:
        if not _is_there(reference):
            raise
        finding = Finding(
            part=Part.TASK,
            what="the task reads",
            grade=Grade.FAILED,
            detail=str(error),
            hint=error.hint or "",
            seconds=watch.seconds,
        )
        hear(finding)
        return [finding]
    return await _checked(task, attack, real_home, hear)


async def _checked(task: TaskAdapter, attack: bool, real_home: Path | None, hear: Hear) -> list[Finding]:
    found = await check_conformance(task, hear)
    if attack:
        found += await check_attacks(task, hear, real_home=real_home)
        found += await check_harness(hear)
    return found


def _is_there(reference: str) -> bool:
    names = {reference, reference.rpartition(":")[0]} - {""}
    return any(Path(name).is_dir() or name in task_names() for name in names)
