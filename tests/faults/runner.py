"""Runs seeds, each in processes of its own that are forked from one which has loaded everything.

`python -m tests.faults FIRST COUNT` is the way in; it starts this with the library in place.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.ledger import Ledger
from tests.faults.disk import Disk
from tests.faults.history import AT_ANY_TIME, check_history
from tests.faults.plan import PARTITION, Act, Life, Plan, make_plan
from tests.faults.proxy import Proxy
from tests.faults.shim import Op, Shim
from tests.faults.world import World, make_home
from tests.postgres import PostgresServer

# A life with a fault that leaves it waiting is ended; the last must end by itself, however busy the machine is.
LIFE_SECONDS = 20.0
LAST_SECONDS = 240.0
# For a hang: its peer gives a stopped worker up within a second or two on a quiet machine.
FREEZE_SECONDS = 60.0
# A process that finds no room when it starts ends with an error, and is started again.
STARTS = 40
FAST = "/dev/shm"
_PR_SET_PDEATHSIG = 1
WARM = Plan(
    -1,
    "none",
    (Act("climb", "climb-1"), Act("steps", "steps-1"), Act("job", "job-1", bytes=70_000, fails=1)),
    (),
    30,
)


@dataclass
class Found:
    """What came of a seed."""

    seed: int
    kind: str
    seconds: float = 0.0
    fired: int = 0
    lives: int = 0
    broken: list[str] = field(default_factory=list)


def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="faults-", dir=FAST if os.access(FAST, os.W_OK) else None))


def make_template(directory: Path) -> Path:
    """A home to begin with. All work is done once in a copy of it, in this process: what that loads, every seed has."""
    template = directory / "template"
    template.mkdir()
    make_home(template, template / "ledger.db")
    (directory / "warm").mkdir()
    warm = Seed(WARM, template, directory / "warm")
    World(warm.shim, warm.home, warm.url).live(WARM.acts, WARM.budget, last=True)
    if broken := check_history(warm.home, warm.url, [{"what": "paid", "run": 1}], WARM):
        raise AssertionError(f"without any fault: {broken}")
    return template


class Seed:
    """One seed, in a process of its own."""

    def __init__(
        self, plan: Plan, template: Path, directory: Path, url: str | None = None, planted: str = ""
    ) -> None:
        self.plan = plan
        self._planted = planted
        self.home = directory / "home"
        shutil.copytree(template, self.home, symlinks=True)
        self.url = url or f"sqlite:///{self.home / 'ledger.db'}"
        self.shim = Shim(directory / "record", self.home)
        self.disk = Disk(self.home)
        self.notes: list[dict[str, Any]] = []
        self._taken = 0
        self.latest_clock = 0
        self.fired = 0

    def run(self) -> list[str]:
        """What was broken."""
        chance = random.Random(f"ratchet disk of seed {self.plan.seed}")
        broken: list[str] = []
        for life in self.plan.lives:
            self._arm(life)
            with self._network(life) as url:
                for _ in range(STARTS):
                    code = self.live(life, last=False, url=url)
                    if not life.must_end or code <= 0:
                        break
            if life.must_end and code != 0:
                broken.append(f"a life without a death did not end well: {code}; {self._log()}")
            self.fired += sum(self.shim.fired(number) > 0 for number in range(len(life.faults)))
            self.latest_clock = max(self.latest_clock, self.shim.clock_ns)
            self._read(chance)
        # The clock is right again, and beyond all that was put off while it was wrong.
        self.shim.clear()
        if self.latest_clock or self.shim.clock_ns:
            self.shim.clock_ns = self.latest_clock + 3600 * 10**9
        code = self.live(Life(), last=True)
        self._read(chance)
        if code != 0:
            broken.append(f"the last life did not end well: {code}; {self._log()}")
        return broken + check_history(self.home, self.url, self.notes, self.plan)

    def _arm(self, life: Life) -> None:
        self.shim.clear()
        for fault in life.faults:
            calls = sum(1 << call for call in fault.calls)
            places = sum(1 << place for place in fault.places)
            self.shim.add(
                calls,
                places,
                fault.first,
                fault.last,
                fault.action,
                fault.error,
                fault.jump_seconds * 10**9,
            )

    @contextlib.contextmanager
    def _network(self, life: Life) -> Iterator[str]:
        """The URL of the database for the worker that the faults of the network are for."""
        if not life.cuts:
            yield self.url
            return
        address, _, behind = self.url.partition("?host=")
        directory = self.home.parent / "network"
        directory.mkdir()
        proxy = Proxy(directory, Path(behind), life.cuts)
        pid = fork(proxy.serve)
        try:
            yield f"{address}?host={directory}"
        finally:
            end(pid)
            fired = directory / "fired"
            self.fired += len(fired.read_text().splitlines()) if fired.exists() else 0

    def live(self, life: Life, *, last: bool, url: str | None = None) -> int:
        done = {note["act"] for note in self.notes if note["what"] == "acted"}
        acts = [act for act in self.plan.acts if act.name not in done]
        world = World(self.shim, self.home, url or self.url, self._planted)
        pids = [self._fork(lambda: world.live(acts, self.plan.budget, last=last))]
        other = World(self.shim, self.home, self.url, self._planted)
        pids += [self._fork(other.help) for _ in range(life.workers - 1)]
        try:
            return self._await(pids[0], pids[1:], LAST_SECONDS if last or life.must_end else LIFE_SECONDS)
        finally:
            for pid in pids:
                end(pid)

    def _fork(self, work: Callable[[], None]) -> int:
        def live() -> None:
            log = os.open(self.home.parent / "worker.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            self.shim.enter()
            work()

        return fork(live)

    def _await(self, leader: int, others: list[int], seconds: float) -> int:
        """How the leader ended: 0, its code, or the signal below zero. One that stops itself is woken once it was given
        up."""
        deadline = time.monotonic() + seconds
        pause = 0.002
        while time.monotonic() < deadline:
            for pid in (leader, *others):
                found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
                if found and os.WIFSTOPPED(status):
                    self._await_handover(pid)
                    self.shim.release()
                    os.kill(pid, signal.SIGCONT)
                elif found and pid == leader:
                    return os.waitstatus_to_exitcode(status)
                elif found:
                    others.remove(pid)
            time.sleep(pause)
            pause = min(0.02, pause * 1.5)
        return -signal.SIGALRM

    def _await_handover(self, pid: int) -> None:
        """Until the other worker has the jobs of the one that is stopped. For that the database must be free, so a
        thread that was stopped in the middle of a write may end that."""
        while self._locks_database(pid):
            os.kill(pid, signal.SIGCONT)
            while self._locks_database(pid):
                time.sleep(0.001)
            os.kill(pid, signal.SIGSTOP)
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        registered = "SELECT 1 FROM processes WHERE pid = ?"
        deadline = time.monotonic() + FREEZE_SECONDS
        with contextlib.closing(
            sqlite3.connect(f"file:{self.home / 'ledger.db'}?mode=ro", uri=True)
        ) as ledger:
            while time.monotonic() < deadline and ledger.execute(registered, (pid,)).fetchone():
                time.sleep(0.02)

    def _locks_database(self, pid: int) -> bool:
        """Whether a thread of it is in the middle of a write."""
        try:
            inode = (self.home / "ledger.db-shm").stat().st_ino
        except FileNotFoundError:
            return False
        locks = map(str.split, Path("/proc/locks").read_text().splitlines())
        return any(words[3:5] == ["WRITE", str(pid)] and words[5].endswith(f":{inode}") for words in locks)

    def _read(self, chance: random.Random) -> None:
        """Take what the record has more, and lose what a power cut loses."""
        entries = list(self.shim.entries())[self._taken :]
        self._taken += len(entries)
        self.disk.follow(entries)
        self.notes += [
            {**json.loads(entry.data), "pid": entry.inode} for entry in entries if entry.op is Op.NOTE
        ]
        if self.shim.dead:
            self.disk.cut(chance)
            self.disk = Disk(self.home)
            self.shim.forget()
            self._taken = 0

    def _log(self) -> str:
        file = self.home.parent / "worker.log"
        return file.read_text(errors="replace")[-3000:] if file.exists() else "no log"


def fork(work: Callable[[], None]) -> int:
    """The number of a process that does `work` and ends, with 0 if nothing was raised."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        # It ends with the process that has started it, whatever ends that.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - told in the log; a fork must never return to the code above it
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(code)


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def run_seed(seed: int, template: Path, url: str | None, options: Namespace) -> Found:
    plan = make_plan(seed)
    found = Found(seed, plan.kind, lives=len(plan.lives) + 1)
    directory = scratch()
    began = time.monotonic()
    try:
        subject = Seed(plan, template, directory, url, options.plant)
        found.broken = subject.run()
        found.fired = subject.fired
    except Exception:  # noqa: BLE001 - a check that cannot be made is told as one that failed
        found.broken.append(traceback.format_exc())
    finally:
        if not (found.broken and options.keep):
            shutil.rmtree(directory, ignore_errors=True)
        else:
            found.broken.append(f"kept in {directory}")
    found.seconds = time.monotonic() - began
    return found


def run_seeds(seeds: list[int], template: Path, databases: Databases, options: Namespace) -> Iterator[Found]:
    """Each in a process of its own, several side by side, in the order in which they end."""
    waiting = list(reversed(seeds))
    running: dict[int, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < options.at_once:
                listen, tell = os.pipe()
                seed = waiting.pop()
                url = databases.make() if make_plan(seed).kind == PARTITION else None

                def work(seed: int = seed, tell: int = tell, url: str | None = url) -> None:
                    with os.fdopen(tell, "w") as out:
                        json.dump(vars(run_seed(seed, template, url, options)), out)

                running[fork(work)] = listen
                os.close(tell)
            pid, _ = os.wait()
            if pid in running:
                with os.fdopen(running.pop(pid)) as heard:
                    yield Found(**json.loads(heard.read()))
    finally:
        for pid in running:
            end(pid)


def sweep(template: Path, every: int) -> tuple[int, list[str]]:
    """Cut the power at each `every`th call of one life without other faults; how often, and what was broken."""
    directory = scratch()
    chance = random.Random("ratchet sweep")
    cuts, broken, notes = 0, [], []
    try:
        subject = Seed(WARM, template, directory)
        if (code := subject.live(Life(), last=True)) != 0:
            return 0, [f"the life did not end well: {code}"]
        for number, entry in enumerate(subject.shim.entries()):
            subject.disk.follow([entry])
            if entry.op is Op.NOTE:
                notes.append(json.loads(entry.data))
            if number % every == 0:
                left = directory / "left"
                subject.disk.cut(chance, left)
                cuts += 1
                url = f"sqlite:///{left / 'ledger.db'}"
                broken += [
                    f"after call {number} ({entry.op.name.lower()}): {each}"
                    for each in check_history(left, url, notes, WARM, AT_ANY_TIME)
                ]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return cuts, broken


class Databases:
    """Databases with all tables, in a PostgreSQL that starts when the first is asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: PostgresServer | None = None
        self._template = ""

    def make(self) -> str:
        if self._server is None:
            self._server = PostgresServer()
            self._server.start()
            self._template = self._server.create_database()
            Ledger.open(self._template, self._directory / "artifacts").close()
        return self._server.create_database(template=self._template)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
