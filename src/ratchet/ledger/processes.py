"""Which processes are working on a ledger, and whether one of this machine has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

# The row that keeps the sums of processes that are gone.
RETIRED = "retired"

# By name, not from the tables of this version: older ones are asked for it too.
_PROCESSES = sa.table("processes", *map(sa.column, ("id", "role", "host", "pid", "identity", "version")))
_STATE: sa.ColumnClause[str] = sa.column("state")
_BEAT_AT: sa.ColumnClause[int] = sa.column("beat_at")


class LivingProcess(NamedTuple):
    id: str
    role: str
    host: str
    pid: int
    identity: str
    version: str

    def __str__(self) -> str:
        return f"{self.id} ({self.role}, pid {self.pid} on {self.host}, Ratchet {self.version})"


def living_processes(
    connection: sa.Connection, now_ms: int, dead_after_seconds: float
) -> list[LivingProcess]:
    """The processes that are registered and not known to be gone: of this machine by the kernel, of others by when they
    were last heard of."""
    query = (
        sa.select(_PROCESSES, _BEAT_AT)
        .where(_PROCESSES.c.id != RETIRED, _STATE != "dead")
        .order_by(_PROCESSES.c.id)
    )
    oldest = now_ms - int(dead_after_seconds * 1000)
    found = []
    for *row, beat_at in connection.execute(query):
        process = LivingProcess(*row)
        runs_here = is_running(process.pid, process.identity)
        if beat_at > oldest if runs_here is None else runs_here:
            found.append(process)
    return found


def is_running(pid: int, identity: str) -> bool | None:
    """Whether a process of this same machine has not ended. `None` where that cannot be said."""
    mine = process_identity(os.getpid())
    if not mine or not identity or _machine(mine) != _machine(identity):
        return None
    try:
        return _identity(pid) == identity
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:  # this process has no descriptor left, say: that is not the death of the other
        return None


def process_identity(pid: int) -> str | None:
    """Boot, process namespace and start time: no other process ever has the same. `None` where it cannot be found."""
    try:
        return _identity(pid)
    except OSError:
        return None


def _identity(pid: int) -> str | None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").readlink()
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    # A zombie has ended; its parent just has not looked yet.
    return None if state == "Z" else f"{boot}/{namespace}/{pid}-{started}"


def _machine(identity: str) -> str:
    return identity.rsplit("/", 1)[0]
