"""The processes that work on one ledger: who lives, who is gone.

A process beats: it raises a counter in its row. Others judge it by their own steady clock, so that a wall clock that
jumps kills nobody: dead is whose counter has not moved for the limit while the database could be read. A process of the
same machine is asked for directly, which takes no time at all.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ratchet import __version__
from ratchet.kernel import new_id
from ratchet.ledger.database import confirm_schema
from ratchet.ledger.processes import RETIRED, is_running, process_identity
from ratchet.ledger.tables import job_tallies, jobs, processes, runs
from ratchet.runtime.job import JobStatus

if TYPE_CHECKING:
    from ratchet.ledger import Run, Transaction


_AGAIN_SECONDS = 60.0


class Complaint:
    """Warns of something that goes wrong, at once and then every minute, and says when it is over."""

    def __init__(
        self, log: logging.Logger, what: str, over: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._what = what
        self._over = over
        self._clock = clock
        self._said: tuple[float, str] | None = None

    def make(self, why: object) -> None:
        now, text = self._clock(), str(why)
        if self._said is None or self._said[1] != text or now >= self._said[0] + _AGAIN_SECONDS:
            self._said = (now, text)
            self._log.warning("%s: %s", self._what, text)

    def end(self) -> None:
        if self._said is not None:
            self._said = None
            self._log.warning("%s", self._over)


# The role of a worker inside a command: it does the jobs of one run only.
COMMAND = "command"
ALIVE = ("alive", "draining")
# Every process runs these every few seconds, beside whatever it is busy with.
_BEAT = (
    sa.update(processes)
    .where(
        processes.c.id == sa.bindparam("process"),
        sa.or_(*(processes.c.state == state for state in ALIVE)),
    )
    .values(
        beat=processes.c.beat + 1,
        beat_at=sa.bindparam("at"),
        busy=sa.bindparam("now_busy"),
        state=sa.bindparam("now"),
    )
    .returning(processes.c.asked)
)
_BEAT_AND_TELL = _BEAT.values(metrics=sa.bindparam("snapshot"))
_LISTED = (
    sa.select(processes).where(processes.c.id != RETIRED).order_by(processes.c.started_at, processes.c.id)
)


@dataclass(frozen=True, slots=True)
class Process:
    id: str
    role: str
    host: str
    pid: int
    identity: str
    version: str
    state: str
    slots: int
    busy: int
    beat: int
    started_at: int
    beat_at: int
    metrics: Any
    asked: int = 0
    facts: Any = None

    def reported(self) -> ProcessFacts:
        return ProcessFacts.read(self.facts)


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What a process says of itself and its machine: when it begins, and each time it is asked.

    What needs a probe is `None` until it was asked, and `answered` is how often that was. `nodes` are those of the
    cluster that it places work on, as that describes them. A host of agents says which lie in its home, and where other
    machines call them.
    """

    answered: int = 0
    python: str = ""
    cpus: int = 0
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    home: str = ""
    url: str | None = None
    placement: str = "local"
    placement_error: str | None = None
    artifacts: str | None = None
    store_ms: float | None = None
    store_error: str | None = None
    ledger_ms: float | None = None
    clock_ms: float | None = None
    disk_free_bytes: int | None = None
    marks: tuple[str, ...] = ()
    nodes: tuple[dict[str, Any], ...] = ()
    agents_url: str | None = None
    agents: tuple[str, ...] = ()

    @classmethod
    def read(cls, row: Any) -> ProcessFacts:
        """From the ledger. One of another version may have other facts."""
        if not isinstance(row, dict):
            return cls()
        known = {each.name for each in fields(cls)}
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in row.items()
            if name in known
        }
        return cls(**given)


def new_process_id() -> str:
    return new_id(f"{socket.gethostname()}-{os.getpid()}")


def register(
    tx: Transaction, process_id: str, role: str, slots: int, facts: ProcessFacts | None = None
) -> None:
    """Enter this process; once more after the others had given it up. Raises `LedgerTooNew` when the ledger was
    upgraded since this process has opened it."""
    confirm_schema(tx.connection)
    row = {
        "id": process_id,
        "role": role,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "identity": process_identity(os.getpid()) or "",
        "version": __version__,
        "state": "alive",
        "slots": slots,
        "busy": 0,
        "beat": 0,
        "started_at": tx.now,
        "beat_at": tx.now,
        "facts": None if facts is None else asdict(facts),
    }
    # A row that is still there is being buried; the next beat tries again.
    entered = tx.connection.execute(tx.insert(processes).values(row).on_conflict_do_nothing())
    if entered.rowcount:
        tx.event("process.started", message=process_id, data={"role": role, "slots": slots})


def beat(
    tx: Transaction, process_id: str, *, busy: int, draining: bool, snapshot: dict[str, float] | None
) -> int | None:
    """Show that this process lives, and learn how often it was asked how it is. `None` when it was given up meanwhile.

    `snapshot` holds its metrics; `None` when they are as they were.
    """
    told: dict[str, Any] = {
        "process": process_id,
        "at": tx.now,
        "now_busy": busy,
        "now": "draining" if draining else "alive",
    }
    if snapshot is None:
        return tx.connection.execute(_BEAT, told).scalar()
    return tx.connection.execute(_BEAT_AND_TELL, {**told, "snapshot": snapshot}).scalar()


def ask_all(tx: Transaction) -> dict[str, int]:
    """Ask every process how it is. Each looks with its next beat; see `ProcessFacts.answered`."""
    asked = (
        sa.update(processes)
        .where(processes.c.id != RETIRED)
        .values(asked=processes.c.asked + 1)
        .returning(processes.c.id, processes.c.asked)
    )
    return {row[0]: row[1] for row in tx.connection.execute(asked)}


def report(tx: Transaction, process_id: str, facts: ProcessFacts) -> None:
    tx.connection.execute(
        sa.update(processes).where(processes.c.id == process_id).values(facts=asdict(facts))
    )


def declare_dead(tx: Transaction, process: Process) -> bool:
    """Give a process up, unless it has beaten since it was looked at. It learns so from its next beat."""
    changed = tx.connection.execute(
        sa.update(processes)
        .where(processes.c.id == process.id, processes.c.beat == process.beat)
        .values(state="dead")
    )
    return changed.rowcount == 1


def leave(tx: Transaction, process_id: str, *, reason: str) -> bool:
    """Remove a process and keep its sums. False when somebody else has done so."""
    row = (
        tx.connection.execute(
            sa.delete(processes).where(processes.c.id == process_id).returning(processes.c.metrics)
        )
        .mappings()
        .first()
    )
    if row is None:
        return False
    _retire_metrics(tx, row["metrics"])
    _retire_tallies(tx, process_id)
    tx.event("process.left", message=process_id, data={"reason": reason})
    return True


def list_processes(tx: Transaction) -> list[Process]:
    return [Process(**row) for row in tx.connection.execute(_LISTED).mappings().all()]


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A machine on which processes work, or a node of the cluster that they place work on.

    Of a machine `slots` are jobs at once. `cpus_used` is what the cluster says of its own; a machine does not count it.
    """

    name: str
    kind: str
    state: str
    roles: dict[str, int]
    slots: int
    busy: int
    cpus: float
    cpus_used: float | None
    gpus: list[str]
    memory_bytes: int | None
    disk_free_bytes: int | None
    versions: list[str]
    beat_at: int


def list_nodes(tx: Transaction, dead_after_seconds: float) -> list[FleetNode]:
    """The machines by name, and then the nodes of their clusters as the processes saw them last."""
    by_host: dict[str, list[Process]] = {}
    clusters: dict[str, FleetNode] = {}
    for process in list_processes(tx):
        by_host.setdefault(process.host, []).append(process)
        if not is_silent(process, tx.now, dead_after_seconds):
            for row in process.reported().nodes:
                clusters[row["id"]] = _cluster_node(row, process)
    machines = [_machine_node(tx, host, found, dead_after_seconds) for host, found in sorted(by_host.items())]
    return [*machines, *sorted(clusters.values(), key=lambda each: each.name)]


def _machine_node(tx: Transaction, host: str, found: list[Process], dead_after_seconds: float) -> FleetNode:
    living = [each for each in found if not is_silent(each, tx.now, dead_after_seconds)]
    newest = max(living or found, key=lambda each: each.started_at).reported()
    roles = Counter(each.role for each in living)
    return FleetNode(
        name=host,
        kind="machine",
        state="alive" if living else "dead",
        roles=dict(sorted(roles.items())),
        slots=sum(each.slots for each in living),
        busy=sum(each.busy for each in living),
        cpus=newest.cpus,
        cpus_used=None,
        gpus=list(newest.gpus),
        memory_bytes=newest.memory_bytes,
        disk_free_bytes=newest.disk_free_bytes,
        versions=sorted({each.version for each in living or found}),
        beat_at=max(each.beat_at for each in found),
    )


def _cluster_node(row: dict[str, Any], process: Process) -> FleetNode:
    return FleetNode(
        name=f"{row['name']} ({row['id'][:8]})",
        kind=process.reported().placement.partition(" ")[0],
        state="alive",
        roles={},
        slots=0,
        busy=0,
        cpus=row["cpus"],
        cpus_used=row["cpus_used"],
        gpus=list(row["gpus"]),
        memory_bytes=row["memory_bytes"],
        disk_free_bytes=None,
        versions=[],
        beat_at=process.beat_at,
    )


def anybody_works(tx: Transaction) -> bool:
    """Whether there is a process that takes jobs: without one, what is queued waits."""
    return any(map(takes_jobs, list_processes(tx)))


def takes_jobs(process: Process) -> bool:
    """Whether a process takes the jobs of any run."""
    return process.state == "alive" and process.slots > 0 and process.role != COMMAND


def cut_off_runs(tx: Transaction, kind: str, *, but: int) -> list[tuple[int, str]]:
    """The number and name of each run of a kind whose process is gone and that no other has claimed since."""
    living = [
        each.id
        for each in list_processes(tx)
        if each.state in ALIVE and is_running(each.pid, each.identity) is not False
    ]
    unfinished = [str(status) for status in JobStatus if not status.final]
    gone = sa.or_(
        sa.and_(jobs.c.status == str(JobStatus.STARTED), jobs.c.process_id.not_in(living)),
        sa.and_(jobs.c.status != str(JobStatus.STARTED), jobs.c.recoveries > 0),
    )
    query = (
        sa.select(runs.c.id, runs.c.name)
        .join(jobs, jobs.c.run_id == runs.c.id)
        .where(jobs.c.status.in_(unfinished), gone, runs.c.kind == kind, runs.c.id != but)
        .distinct()
        .order_by(runs.c.id)
    )
    return [(number, name) for number, name in tx.connection.execute(query)]


def is_cut_off(tx: Transaction, run: Run) -> bool:
    """Whether the process that worked on a run is gone, and no other is there to take it over."""
    return not anybody_works(tx) and any(number == run.id for number, _ in cut_off_runs(tx, run.kind, but=0))


def all_snapshots(tx: Transaction, *, but: str | None = None) -> list[dict[str, float]]:
    """The metrics of every process `but` one, gone ones included."""
    query = sa.select(processes.c.metrics).where(processes.c.metrics.is_not(None))
    if but is not None:
        query = query.where(processes.c.id != but)
    return list(tx.connection.execute(query).scalars())


class Watch:
    """Finds dead processes by watching their counters."""

    def __init__(
        self, me: str, dead_after_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._me = me
        self._dead_after = dead_after_seconds
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}

    def dead(self, found: list[Process]) -> list[Process]:
        """Those in `found` (every registered process) that are to be given up."""
        now = self._clock()
        self._seen = {
            each.id: previous
            if (previous := self._seen.get(each.id)) and previous[0] == each.beat
            else (each.beat, now)
            for each in found
            if each.id != self._me
        }
        return [
            each
            for each in found
            if each.id != self._me
            and (
                now - self._seen[each.id][1] > self._dead_after
                or is_running(each.pid, each.identity) is False
            )
        ]

    def blind(self) -> None:
        """The database could not be read: nobody could beat, so all clocks start again."""
        self._seen.clear()


def _retire_metrics(tx: Transaction, snapshot: dict[str, float] | None) -> None:
    if not snapshot:
        return
    kept = tx.connection.execute(
        sa.select(processes.c.metrics).where(processes.c.id == RETIRED).with_for_update()
    ).first()
    if kept is None:
        tx.connection.execute(
            sa.insert(processes).values(
                id=RETIRED,
                role=RETIRED,
                host="",
                pid=0,
                identity="",
                version=__version__,
                state=RETIRED,
                slots=0,
                busy=0,
                beat=0,
                started_at=tx.now,
                beat_at=tx.now,
                metrics=snapshot,
            )
        )
    else:
        # Loaded here: commands list processes and count nothing.
        from ratchet.observe import metrics

        total = metrics.merge([kept[0] or {}, snapshot])
        tx.connection.execute(sa.update(processes).where(processes.c.id == RETIRED).values(metrics=total))


def _retire_tallies(tx: Transaction, process_id: str) -> None:
    """Fold the job counts of a gone process into one row per queue and status, so that they stay few."""
    mine = sa.delete(job_tallies).where(job_tallies.c.process_id == process_id).returning(job_tallies)
    for row in tx.connection.execute(mine).mappings().all():
        same = sa.and_(
            job_tallies.c.queue == row["queue"],
            job_tallies.c.status == row["status"],
            job_tallies.c.process_id == RETIRED,
        )
        added = sa.update(job_tallies).where(same).values(count=job_tallies.c.count + row["count"])
        if tx.connection.execute(added).rowcount == 0:
            tx.connection.execute(sa.insert(job_tallies).values({**row, "process_id": RETIRED}))


@dataclass(frozen=True, slots=True)
class LeftBehind:
    process: Process
    jobs: int


def is_silent(process: Process, now_ms: int, dead_after_seconds: float) -> bool:
    """Whether a process was given up, or has not been heard of for so long that it will be.

    By the wall clock, which is good enough to tell a person; what becomes of its jobs is decided by `Watch`.
    """
    return process.state == "dead" or process.beat_at < now_ms - dead_after_seconds * 1000


def left_behind(tx: Transaction, dead_after_seconds: float) -> list[LeftBehind]:
    """The silent processes that jobs are still said to run on."""
    silent = [each for each in list_processes(tx) if is_silent(each, tx.now, dead_after_seconds)]
    if not silent:
        return []
    query = (
        sa.select(jobs.c.process_id, sa.func.count())
        .where(jobs.c.status == str(JobStatus.STARTED), jobs.c.process_id.in_([each.id for each in silent]))
        .group_by(jobs.c.process_id)
    )
    held = {row[0]: row[1] for row in tx.connection.execute(query)}
    return [LeftBehind(each, held[each.id]) for each in silent if each.id in held]
