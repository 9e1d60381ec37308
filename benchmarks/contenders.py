"""Who is measured, and where each keeps its jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.stage import Stage, place_of


@dataclass(frozen=True, slots=True)
class Contender:
    title: str
    side: str
    # A new, empty place for its jobs.
    place: Callable[[Stage], dict[str, str]]
    together: bool = True
    forking: bool = False


def _ratchet(database: str) -> Callable[[Stage], dict[str, str]]:
    return lambda stage: place_of(stage.new_home(database))


def _redis(stage: Stage) -> dict[str, str]:
    return {"socket": str(stage.redis), "queue": stage.new_directory("queue").name}


def _huey(waits: str) -> Callable[[Stage], dict[str, str]]:
    return lambda stage: {"file": str(stage.new_directory("huey") / "huey.db"), "waits": waits}


RATCHET = [
    Contender("Ratchet, SQLite", "ratchet", _ratchet("sqlite")),
    Contender("Ratchet, PostgreSQL", "ratchet", _ratchet("postgresql")),
]
RQ = Contender("RQ in the worker, Redis", "rq", _redis)
RQ_FORKING = Contender("RQ, a process per job, Redis", "rq-fork", _redis, forking=True)
HUEY_TUNED = Contender("Huey looking every 5 ms, SQLite", "huey", _huey("tuned"), together=False)
HUEY = Contender("Huey as shipped, SQLite", "huey", _huey("shipped"), together=False)
