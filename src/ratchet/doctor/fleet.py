"""Probes of a fleet: what the processes of a ledger report when they are asked, compared with each other."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ratchet import __version__
from ratchet.config import Loaded
from ratchet.doctor.machine import ProbeCheck, Status
from ratchet.kernel import LedgerError, RatchetError
from ratchet.ledger import Ledger
from ratchet.ledger.database import database_now_ms, now_ms
from ratchet.placement import Brokered, Order, PlacedWork, WorkLost, carry_out, pinned_to, placement_for
from ratchet.runtime import Process, list_processes, open_ledger
from ratchet.runtime.heartbeat import MARK
from ratchet.runtime.processes import ProcessFacts, ask_all, is_silent

# A heartbeat, and then what a process tries: its store alone may take five seconds to be known as away.
_PATIENCE_SECONDS = 12.0
_LOOK_SECONDS = 0.2
_REACH_SECONDS = 3.0
_SLOW_LEDGER_MS = 250.0
# Nothing is decided by the clocks of machines; but certificates, signatures of a store and what people read are.
_CLOCK_WARNS_MS, _CLOCK_FAILS_MS = 1000.0, 30_000.0
_NODES_SECONDS = 30.0
_LOOPBACK = ("127.", "localhost", "[::1]")


class Asked(NamedTuple):
    """The processes of a ledger after all had time to answer, and of which of them the answer is new."""

    processes: list[Process]
    answered: set[str]
    mark: str
    dead_after_seconds: float
    now_ms: int
    clock_ms: float

    def living(self) -> list[tuple[Process, ProcessFacts]]:
        """Those that answered, with what they said."""
        return [(each, each.reported()) for each in self.processes if each.id in self.answered]


def fleet(loaded: Loaded) -> list[ProbeCheck]:
    """How every living process of the ledger is, by its own answer, and how the nodes of the cluster are."""
    try:
        with open_ledger(loaded, upgrade=False) as ledger, _marked(loaded.home) as mark:
            asked = _ask(ledger, loaded, mark)
    except LedgerError as error:
        return [ProbeCheck("fleet", "fail", str(error), error.hint)]
    if not asked.processes:
        fix = "start `ratchet serve` or `ratchet worker` on each machine"
        return [ProbeCheck("fleet", "warn", "no process works on this ledger", fix)]
    return [
        *_answers(asked),
        *_versions(asked),
        *_clocks(asked),
        *_ledgers(asked),
        *_stores(asked, loaded),
        *_servers(asked),
        *_placements(asked),
        *_nodes(loaded, asked),
    ]


@contextlib.contextmanager
def _marked(home: Path) -> Iterator[str]:
    """A file in the home, which only those see who share it."""
    mark = secrets.token_hex(8)
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{MARK}{mark}"
    path.touch()
    try:
        yield mark
    finally:
        path.unlink(missing_ok=True)


def _ask(ledger: Ledger, loaded: Loaded, mark: str) -> Asked:
    config = loaded.settings.runtime
    with ledger.write(actor="doctor") as tx:
        wanted = ask_all(tx)
    deadline = time.monotonic() + 2 * config.heartbeat_seconds + _PATIENCE_SECONDS
    while True:
        with ledger.read() as tx:
            found = list_processes(tx)
            before, now = now_ms(), database_now_ms(tx.connection)
        answered = {
            each.id for each in found if each.id in wanted and each.reported().answered >= wanted[each.id]
        }
        silent = {each.id for each in found if is_silent(each, now, config.dead_after_seconds)}
        if time.monotonic() > deadline or all(each.id in answered | silent for each in found):
            return Asked(found, answered, mark, config.dead_after_seconds, now, before - now)
        time.sleep(_LOOK_SECONDS)


def _place(process: Process) -> str:
    return f"{process.role} {process.pid} on {process.host}"


def _check(
    name: str, findings: Sequence[tuple[str, str]], well: str, status: Status = "fail"
) -> list[ProbeCheck]:
    """One check for each finding with its fix, or one that says that all is well."""
    if not findings:
        return [ProbeCheck(name, "ok", well)]
    return [ProbeCheck(name, status, detail, fix) for detail, fix in findings]


def _answers(asked: Asked) -> list[ProbeCheck]:
    hosts = sorted({process.host for process, _ in asked.living()})
    slots = sum(process.slots for process, _ in asked.living())
    well = f"{len(asked.answered)} answered, with {slots} slots, on {', '.join(hosts) or 'no machine'}"
    silent = [each for each in asked.processes if each.id not in asked.answered]
    findings = [_silence(each, asked) for each in silent]
    return [
        *_check("fleet processes", findings, well),
        *([ProbeCheck("fleet processes", "ok", well)] if findings else []),
    ]


def _silence(process: Process, asked: Asked) -> tuple[str, str]:
    seconds = max(0, asked.now_ms - process.beat_at) / 1000
    if is_silent(process, asked.now_ms, asked.dead_after_seconds):
        return (
            f"{_place(process)} has not been heard of for {seconds:.0f} s",
            f"start `ratchet worker` on {process.host} or elsewhere: it takes its jobs over",
        )
    return (
        f"{_place(process)} lives and does not answer; its last heartbeat was {seconds:.0f} s ago",
        f"read its log on {process.host}; after `kill {process.pid}` there, others take its jobs over",
    )


def _versions(asked: Asked) -> list[ProbeCheck]:
    # Also those that do not answer: an older version does not know how.
    others = [each for each in asked.processes if each.version != __version__]
    findings = [
        (
            f"{_place(each)} runs Ratchet {each.version}; this is {__version__}",
            f"on {each.host}: `kill {each.pid}`, install ratchet-loop=={__version__}, start it again",
        )
        for each in others
    ]
    checks = _check("fleet versions", findings, f"all run Ratchet {__version__}")
    pythons = {facts.python.rpartition(".")[0] for _, facts in asked.living()}
    if len(pythons) > 1:
        listed = "; ".join(f"{_place(each)} has {facts.python}" for each, facts in asked.living())
        fix = "use one version of Python: tasks and tools may behave differently"
        checks.append(ProbeCheck("fleet versions", "warn", f"several versions of Python: {listed}", fix))
    return checks


def _clock(name: str, who: str, host: str, ahead_ms: float) -> ProbeCheck | None:
    if abs(ahead_ms) <= _CLOCK_WARNS_MS:
        return None
    status: Status = "fail" if abs(ahead_ms) > _CLOCK_FAILS_MS else "warn"
    way = "ahead of" if ahead_ms > 0 else "behind"
    detail = f"the clock of {who} is {abs(ahead_ms) / 1000:.1f} s {way} that of the database"
    return ProbeCheck(name, status, detail, f"run an NTP client on {host}, such as chrony")


def _clocks(asked: Asked) -> list[ProbeCheck]:
    measured = [(each, facts.clock_ms) for each, facts in asked.living() if facts.clock_ms is not None]
    # One for each machine: its processes have the same clock.
    by_host = {each.host: (each, ahead) for each, ahead in measured}
    found = [_clock("fleet clocks", each.host, each.host, ahead) for each, ahead in by_host.values()]
    worst = max((abs(ahead) for _, ahead in measured), default=0.0)
    well = ProbeCheck("fleet clocks", "ok", f"at most {worst / 1000:.2f} s from that of the database")
    return [each for each in found if each is not None] or [well]


def _ledgers(asked: Asked) -> list[ProbeCheck]:
    measured = [(each, facts.ledger_ms) for each, facts in asked.living() if facts.ledger_ms is not None]
    findings = [
        (
            f"{_place(each)} waits {took:.0f} ms for an answer of the database",
            f"see how busy {each.host} and the network between it and the database are",
        )
        for each, took in measured
        if took > _SLOW_LEDGER_MS
    ]
    worst = max((took for _, took in measured), default=0.0)
    return _check("fleet database", findings, f"answers everybody within {worst:.1f} ms", "warn")


def _stores(asked: Asked, loaded: Loaded) -> list[ProbeCheck]:
    wanted = loaded.settings.artifacts.url
    findings = []
    for each, facts in asked.living():
        if facts.artifacts != wanted:
            findings.append(
                (
                    f"{_place(each)} keeps artifacts in {facts.artifacts or facts.home}; "
                    f"here artifacts.url is {wanted or 'not set'}",
                    f"set artifacts.url alike everywhere, and start process {each.pid} of {each.host} again",
                )
            )
        elif facts.store_error is not None:
            findings.append((f"{_place(each)}: {facts.store_error}", f"try `ratchet doctor` on {each.host}"))
        elif wanted is None and asked.mark not in facts.marks:
            findings.append(
                (
                    f"{_place(each)} has another home, {facts.home}, and there is no artifact store",
                    "set artifacts.url everywhere, or RATCHET_HOME to one directory that all machines share",
                )
            )
    took = [facts.store_ms for _, facts in asked.living() if facts.store_ms is not None]
    well = (
        f"{wanted} works for everybody, within {max(took, default=0):.0f} ms"
        if wanted
        else "all share one home"
    )
    return _check("fleet store", findings, well)


def _servers(asked: Asked) -> list[ProbeCheck]:
    servers = [(each, facts.url, "server.host") for each, facts in asked.living() if facts.url is not None]
    hosts = [
        (each, facts.agents_url, "agents.host")
        for each, facts in asked.living()
        if facts.agents and facts.agents_url is not None
    ]
    findings = []
    for each, url, setting in [*servers, *hosts]:
        what = "answers" if setting == "server.host" else "answers for agents"
        if each.host != socket.gethostname() and url.partition("://")[2].startswith(_LOOPBACK):
            findings.append(
                (
                    f"{_place(each)} {what} at {url}, which only {each.host} itself reaches",
                    f"on {each.host}: set {setting} to an address that others reach, in a private network",
                )
            )
        elif problem := _unreachable(url):
            findings.append(
                (
                    f"{_place(each)} cannot be reached at {url}: {problem}",
                    f"let {url} through to this machine",
                )
            )
    listed = ", ".join(url for _, url, _ in servers)
    return _check("fleet servers", findings, f"reached: {listed}" if listed else "there are none", "warn")


def _unreachable(url: str) -> str | None:
    """Why nothing speaks HTTP there. What it answers is another question."""
    try:
        with urllib.request.urlopen(f"{url}/health/live", timeout=_REACH_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        error.close()
        return None
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def _placements(asked: Asked) -> list[ProbeCheck]:
    workers = [(each, facts) for each, facts in asked.living() if each.slots]
    findings = [
        (
            f"{_place(each)}: {facts.placement_error}",
            f"let {each.host} reach the head, or set placement.address",
        )
        for each, facts in workers
        if facts.placement_error is not None
    ]
    kinds = {facts.placement for _, facts in workers}
    if len(kinds) > 1:
        listed = "; ".join(f"{_place(each)}: {facts.placement}" for each, facts in workers)
        findings.append(
            (f"workers place their work differently: {listed}", "set [placement] alike everywhere")
        )
    return _check("fleet placement", findings, ", ".join(sorted(kinds)) or "no worker places anything")


def _nodes(loaded: Loaded, asked: Asked) -> list[ProbeCheck]:
    """The nodes of the cluster, each asked by a piece of work that only it can do."""
    try:
        placement = placement_for(loaded.settings)
        if not isinstance(placement, Brokered):
            return []
        return asyncio.run(_looked_at(placement, asked))
    except (RatchetError, TimeoutError) as error:
        fix = getattr(error, "hint", None) or "see whether the head runs and placement.address is right"
        return [ProbeCheck("fleet nodes", "fail", str(error) or "the cluster does not answer", fix)]


async def _looked_at(placement: Brokered, asked: Asked) -> list[ProbeCheck]:
    async with asyncio.timeout(_NODES_SECONDS):
        nodes = await placement.nodes()
    answers = await asyncio.gather(
        *(_facts(placement, pinned_to(each)) for each in nodes), return_exceptions=True
    )
    checks: list[ProbeCheck] = []
    for node, found in zip(nodes, answers, strict=True):
        who = f"node {node.id[:8]} ({node.name})"
        if isinstance(found, BaseException):
            fix = f"install ratchet-loop=={__version__} for Ray's Python on {node.name}, and see Ray's log there"
            checks.append(ProbeCheck("fleet nodes", "fail", f"{who}: {found or 'no answer in time'}", fix))
        elif (wrong := _clock("fleet nodes", who, node.name, found["ahead_ms"] + asked.clock_ms)) is not None:
            checks.append(wrong)
    listed = ", ".join(f"{each.name} with {each.resources.get('CPU', 0):g} CPUs" for each in nodes)
    return checks or [ProbeCheck("fleet nodes", "ok", f"{len(nodes)}: {listed}")]


async def _facts(placement: Brokered, needs: Any) -> dict[str, Any]:
    work: PlacedWork[dict[str, Any]] = PlacedWork(
        name="doctor",
        here=_nothing,
        there=lambda: Order("ratchet.placement:facts", None, kind="doctor"),
        needs=needs,
    )
    async with asyncio.timeout(_NODES_SECONDS):
        began = now_ms()
        found = await carry_out(placement, work, most_lost=2)
    ended = now_ms()
    # The clock was read at some moment between: half a start of a process is not held against it.
    ahead = found["clock"] * 1000 - (began + ended) / 2
    return {**found, "ahead_ms": ahead if abs(ahead) > (ended - began) / 2 else 0.0}


async def _nothing() -> dict[str, Any]:
    raise WorkLost("a node is asked there, and not here")
