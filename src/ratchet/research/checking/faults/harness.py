"""Every fault, on the task that `ratchet research new` makes."""

from __future__ import annotations

import asyncio

from ratchet.research.checking.bench import new_place
from ratchet.research.checking.faults.evaluators import FAULTS, try_evaluator, try_meddling
from ratchet.research.checking.faults.machine import (
    try_full_disk,
    try_killed_parent,
    try_killed_watcher,
    try_large_file,
)
from ratchet.research.checking.faults.scene import NAME, open_scene
from ratchet.research.checking.faults.supervisor import try_killed_supervisor
from ratchet.research.checking.finding import Finding, Hear


async def check_harness(hear: Hear = lambda _finding: None) -> list[Finding]:
    """What this Ratchet on this machine makes of faults."""
    found: list[Finding] = []

    def add(finding: Finding) -> None:
        found.append(finding)
        hear(finding)

    with new_place() as place:
        async with open_scene(place) as scene, asyncio.TaskGroup() as beside:
            # It is a process of its own that mostly waits.
            killed = beside.create_task(asyncio.to_thread(try_killed_supervisor, place / NAME, place))
            for fault in FAULTS:
                add(await try_evaluator(scene, fault))
            add(await try_meddling(scene))
            add(await try_large_file(scene))
            add(await try_killed_watcher(scene))
            add(await try_killed_parent(scene))
            add(await try_full_disk())
            add(await killed)
    return found
