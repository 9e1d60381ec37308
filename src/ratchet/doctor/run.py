"""Running probes side by side, within a time limit, and what a probe found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Literal, cast

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class ProbeCheck:
    """One finding. `warn`: works without it, but less well. `fix` tells how to put it right."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


Probe = Callable[[], list[ProbeCheck]]


LIMIT_SECONDS = 20.0


def run_all(checks: Iterable[Probe], seconds: float = LIMIT_SECONDS) -> list[ProbeCheck]:
    """The checks of every probe, in the order given. A probe that raises or is late has failed."""
    probes = list(checks)
    answers: SimpleQueue[tuple[int, list[ProbeCheck]]] = SimpleQueue()
    for number, probe in enumerate(probes):
        # Daemons: a probe that hangs must not keep the process from ending.
        Thread(target=_answer, args=(number, probe, answers), daemon=True).start()
    found = _gather(answers, len(probes), time.monotonic() + seconds)
    found_or_late = (found.get(number, [_late(probe, seconds)]) for number, probe in enumerate(probes))
    return [check for checks in found_or_late for check in checks]


def _answer(number: int, probe: Probe, answers: SimpleQueue[tuple[int, list[ProbeCheck]]]) -> None:
    try:
        checks = probe()
    except Exception as error:  # noqa: BLE001  A broken probe is a finding; the others must still be heard.
        checks = [
            ProbeCheck(_name(probe), "fail", f"the check itself failed: {type(error).__name__}: {error}")
        ]
    answers.put((number, checks))


def _gather(
    answers: SimpleQueue[tuple[int, list[ProbeCheck]]], count: int, deadline: float
) -> dict[int, list[ProbeCheck]]:
    found: dict[int, list[ProbeCheck]] = {}
    while len(found) < count:
        try:
            number, checks = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        found[number] = checks
    return found


def _late(probe: Probe, seconds: float) -> ProbeCheck:
    return ProbeCheck(_name(probe), "fail", f"no answer within {seconds:g} s")


def _name(probe: Probe) -> str:
    inner = cast("Probe", probe.func) if isinstance(probe, partial) else probe
    return getattr(inner, "__name__", type(inner).__name__).replace("_", " ")
