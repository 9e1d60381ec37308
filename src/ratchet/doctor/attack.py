"""The attack suite: hostile code run in the real sandbox of this machine, and what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import resource
import socket
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ratchet.doctor import hostile
from ratchet.engines.program import Invocation
from ratchet.judges.reports import BadReport, read_report
from ratchet.kernel import RatchetError, decoded, last_line
from ratchet.programs import DEVNULL, TookTooLong, start_program
from ratchet.sandbox import (
    Bounds,
    Finished,
    IsolationRefused,
    Layer,
    Node,
    Policy,
    Stopped,
    run,
)

HOSTILE = Path(hostile.__file__)
NODE, COMMAND, AGENT = "node", "command", "agent"
_MIB = 1024 * 1024
_SECRET = "a secret of the outside"
_CALL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import hostile
print(json.dumps(getattr(hostile, sys.argv[2])(json.loads(sys.argv[3]))))
"""


@dataclass(frozen=True, slots=True)
class AttackResult:
    """What became of one attack. `stopped_by` are the layers and limits that it met. `held` is `None` for one that
    could not be tried."""

    attack: str
    runs_as: str
    expected: str
    happened: str
    stopped_by: str
    held: bool | None


class OutsideWorld:
    """Things of the machine that an attack must not reach, and a workspace that it may write."""

    def __init__(self, directory: Path, address: tuple[str, int], abstract: str) -> None:
        self.directory = directory
        self.address = address
        self.abstract = abstract
        self.mark = uuid.uuid4().hex
        self.workspace = directory / self.mark
        self.workspace.mkdir()
        self.secret = self.workspace.with_suffix(".secret")
        self.secret.write_text(_SECRET)
        self.victim = start_program(
            ["sleep", "600"],
            output=DEVNULL,
            complaints=DEVNULL,
            environment={"CANARY": self.mark, "PATH": os.defpath},
        )

    def close(self) -> None:
        for pid in (self.victim.pid, *processes_with(self.mark)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.victim.wait()


Given = Callable[[OutsideWorld], Any]
# What got through, in words; nothing if nothing did.
Got = Callable[[Finished, OutsideWorld], str]


def _result(done: Finished, _: OutsideWorld) -> str:
    """For one that raises unless it gets something."""
    return f"it got {done.value!r:.80}" if done.ok and done.value else ""


def _past(stopped: Stopped) -> Got:
    """For one that must be stopped by a bound, or fail for want of what the bound does not give."""

    def got(done: Finished, _: OutsideWorld) -> str:
        if done.ok:
            return "it ran past the bound and ended well"
        return "" if done.stopped in (stopped, None) else f"it ran until the bound {done.stopped}"

    return got


def _wrote(_: Finished, outside: OutsideWorld) -> str:
    return "it wrote a file of the machine" if Path(f"{outside.secret}.new").exists() else ""


def _ended_victim(_: Finished, outside: OutsideWorld) -> str:
    with contextlib.suppress(TookTooLong):
        outside.victim.wait(0.05)
        return "a process of the machine was ended"
    return ""


def _canary(done: Finished, outside: OutsideWorld) -> str:
    return "it read the environment of another process" if outside.mark in done.stdout.decode() else ""


def _left_behind(_: Finished, outside: OutsideWorld) -> str:
    left = [path.name for path in outside.workspace.rglob("*") if path.lstat().st_mode & 0o6000]
    return f"left behind: {', '.join(left)}" if left else ""


def _leases(done: Finished, _: OutsideWorld) -> str:
    return "it got a lease" if done.ok and any(each.startswith("lease ") for each in done.value) else ""


def _survived(_: Finished, outside: OutsideWorld) -> str:
    return "a process of it lives on" if processes_with(outside.mark) else ""


def _pretended(done: Finished, _: OutsideWorld) -> str:
    return f"it is reported as {done.stopped}" if done.stopped else ""


def _many_names(done: Finished, _: OutsideWorld) -> str:
    return f"it made {done.value} names" if done.ok and done.value >= 20_000 else ""


def _many_sent(done: Finished, _: OutsideWorld) -> str:
    most, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"{done.value} are on their way, and Ratchet may have {most}"
        if done.ok and done.value >= most
        else ""
    )


def _many_watches(done: Finished, _: OutsideWorld) -> str:
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    return f"it has {done.value} of {most}" if done.ok and done.value > most // 4 else ""


def _many_timers(done: Finished, _: OutsideWorld) -> str:
    return f"it has {done.value} timers" if done.ok and done.value > 10_000 else ""


def _rights(done: Finished, _: OutsideWorld) -> str:
    return f"it has capabilities {done.value}" if done.ok and int(done.value, 16) else ""


def _read_whole(done: Finished, outside: OutsideWorld) -> str:
    try:
        read_report(outside.workspace, "report")
    except BadReport:
        return ""
    return f"Ratchet read a report of {done.value} bytes"


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing that hostile code tries. Where its end does not say what stopped it, `by` is named: layers, if they
    were on, or something else that holds without them."""

    name: str
    ways: tuple[str, ...]
    expected: str
    function: str
    given: Given = lambda _: None
    got: Got = _result
    bounds: Bounds = field(default_factory=lambda: Bounds(wall_seconds=20))
    by: tuple[str, ...] = ()
    scratch: bool = False
    # How often it is tried, one after the other; the last counts.
    times: int = 1


_ALL = (NODE, COMMAND, AGENT)
_BOTH = (NODE, COMMAND)
_DEVICES = ["/dev/null", "/dev/zero", "/dev/full"]
_FILES = (Layer.MOUNT, Layer.SECCOMP)
ATTACKS = (
    Attack("read a file of the user", _ALL, "not there", "read_file", lambda o: str(o.secret)),
    Attack("read a file of the user's home", _ALL, "not there", "read_file", lambda _: _file_of_home()),
    Attack("read the password hashes", _ALL, "not there", "read_file", lambda _: _there("/etc/shadow")),
    Attack("write beside the workspace", _ALL, "refused", "write_file", lambda o: f"{o.secret}.new",
           _wrote, by=(Layer.MOUNT,)),
    Attack("leave by a symbolic link", _ALL, "leads nowhere", "link_away", lambda o: str(o.secret), scratch=True),
    Attack("leave by the root of another process", _ALL, "leads nowhere", "walk_out", lambda o: str(o.secret)),
    Attack("open a disk", _ALL, "not there", "read_device", lambda _: _disk()),
    Attack("change a setting of the kernel", _ALL, "refused", "change_kernel_setting",
           lambda _: _there("/proc/sys/vm/overcommit_memory")),
    Attack("make a setuid program", (NODE,), "none is made", "special_modes", lambda _: "/tmp",
           by=(Layer.SECCOMP,), scratch=True),
    Attack("leave a setuid program behind", (COMMAND, AGENT), "none is left", "special_modes",
           lambda o: str(o.workspace), _left_behind, by=(Layer.SECCOMP,)),
    Attack("change mode, times or owner of a foreign file", _ALL, "refused", "touch_foreign",
           lambda o: [os.__file__, str(o.secret)], by=_FILES),
    Attack("change the mode of a device", _ALL, "refused", "touch_foreign", lambda _: _DEVICES, by=_FILES),
    Attack("take a lease on its own file", (COMMAND, AGENT), "refused", "touch_foreign",
           lambda o: [_touched(o.workspace / "own")], _leases, by=(Layer.SECCOMP,)),
    Attack("connect to a server of the machine", _BOTH, "refused", "tcp", lambda o: list(o.address)),
    Attack("send a packet", _BOTH, "refused", "udp", lambda _: ["192.0.2.1", 9]),
    Attack("connect to an abstract socket", _BOTH, "refused", "abstract_socket", lambda o: o.abstract),
    Attack("talk to the host of a virtual machine", _ALL, "refused", "virtual_socket"),
    Attack("end a process of the machine", _ALL, "refused", "end_process", lambda o: o.victim.pid, _ended_victim),
    Attack("trace a process of the machine", _ALL, "refused", "trace", lambda o: o.victim.pid),
    Attack("read the environment of others", _ALL, "nothing found", "environment_of_others", got=_canary,
           by=(Layer.PID,)),
    Attack("make namespaces of its own", _BOTH, "refused", "unshare", lambda _: 0x10020000),
    Attack("mount a file system", _BOTH, "refused", "mount"),
    Attack("keep a capability", _ALL, "none", "capabilities", got=_rights, by=(Layer.CAPABILITIES,)),
    Attack("write to what was left open", _ALL, "nothing is open", "write_to_descriptors",
           by=("nothing is left open",)),
    Attack("leave a mark for the next on descriptor 0", (NODE,), "none is found", "mark_descriptor",
           by=("an open file of its own",), times=9),
    Attack("keep descriptors on their way", _ALL, "fewer than Ratchet may send", "send_descriptors", lambda _: 0.0,
           _many_sent, by=(Layer.LIMITS,)),
    Attack("use up the user's watches", _ALL, "less than a quarter of them", "watch_files", got=_many_watches,
           by=(Layer.USER,)),
    Attack("live on after the end", (COMMAND, AGENT), "ended", "survivor", lambda o: o.mark, _survived,
           by=(Layer.PID,)),
    Attack("pretend to have been cancelled", (COMMAND,), "not believed", "signal_first", lambda _: 10, _pretended,
           by=(Layer.LANDLOCK, Layer.PID)),
    Attack("run for ever, deaf to signals", _BOTH, "stopped: wall", "stubborn", lambda _: 60.0, _past(Stopped.WALL),
           Bounds(wall_seconds=0.5)),
    Attack("use CPU time in forgotten children", (COMMAND,), "stopped: cpu", "burn_forgotten", lambda _: 0.2,
           _past(Stopped.CPU), Bounds(wall_seconds=20, cpu_seconds=0.5)),
    Attack("take too much memory", _BOTH, "stopped: memory", "allocate", lambda _: 512 * _MIB,
           _past(Stopped.MEMORY), Bounds(wall_seconds=20, memory_bytes=128 * _MIB)),
    Attack("take memory in many processes", (COMMAND,), "stopped: memory", "allocate_in_many", lambda _: 40 * _MIB,
           _past(Stopped.MEMORY), Bounds(wall_seconds=20, memory_bytes=128 * _MIB)),
    Attack("take memory by System V sharing", _BOTH, "stopped: memory", "system_v_memory", lambda _: 256 * _MIB,
           _past(Stopped.MEMORY), Bounds(wall_seconds=15, memory_bytes=128 * _MIB)),
    Attack("take memory that nothing maps", _ALL, "refused", "secret_memory", lambda _: 256 * _MIB,
           _past(Stopped.MEMORY), Bounds(wall_seconds=15, memory_bytes=128 * _MIB)),
    Attack("take memory in sockets", (COMMAND,), "stopped: memory", "fill_sockets", lambda _: ["unix", 600, False],
           _past(Stopped.MEMORY), Bounds(wall_seconds=20, memory_bytes=64 * _MIB)),
    Attack("take memory in page tables", _BOTH, "stopped: memory", "page_tables", lambda _: 256 * _MIB,
           _past(Stopped.MEMORY), Bounds(wall_seconds=60, memory_bytes=32 * _MIB)),
    Attack("take memory in watches of epoll", _BOTH, "stopped: memory", "epoll_watches", lambda _: [400_000, False],
           _past(Stopped.MEMORY), Bounds(wall_seconds=60, memory_bytes=32 * _MIB)),
    Attack("use up the timers of the user", _BOTH, "less than others need", "pending_timers", got=_many_timers,
           by=(Layer.LIMITS,)),
    Attack("take memory by names of files", _BOTH, "below 20,000 names", "links", lambda _: "/tmp", _many_names,
           Bounds(wall_seconds=20, memory_bytes=64 * _MIB), by=(Layer.MOUNT,), scratch=True),
    Attack("fill the disk by many files", (COMMAND,), "stopped: disk", "fill_with_files",
           lambda o: [str(o.workspace), 8, False], _past(Stopped.DISK), Bounds(wall_seconds=20, disk_bytes=32 * _MIB)),
    Attack("write a huge file", (COMMAND,), "stopped by size", "huge_file", lambda o: f"{o.workspace}/huge"),
    Attack("have a huge report read", (COMMAND,), "not read", "huge_file", lambda o: f"{o.workspace}/report",
           _read_whole, Bounds(wall_seconds=20, file_bytes=None), by=("Ratchet, as it reads",)),
    Attack("flood its output", _BOTH, "stopped: output", "flood", lambda _: 2, _past(Stopped.OUTPUT),
           Bounds(wall_seconds=20, output_bytes=100_000)),
    Attack("start too many processes", _BOTH, "stopped: processes", "crowd", lambda _: 40, _past(Stopped.PROCESSES),
           Bounds(wall_seconds=20, processes=16)),
)  # fmt: skip


async def attack_here(
    attacks: Sequence[Attack] = ATTACKS, *, floor: frozenset[Layer] | None = None
) -> list[AttackResult]:
    """Run the attacks in the sandbox of this machine. With another `floor` also where that refuses layers."""
    turns = asyncio.Semaphore(os.cpu_count() or 1)
    with _outside() as make:

        async def one(attack: Attack, way: str) -> AttackResult:
            async with turns:
                outside = await asyncio.to_thread(make)
                try:
                    return await _attack(attack, way, outside, floor)
                finally:
                    await asyncio.to_thread(outside.close)

        return await asyncio.gather(*(one(attack, way) for attack in attacks for way in attack.ways))


async def _attack(
    attack: Attack, way: str, outside: OutsideWorld, floor: frozenset[Layer] | None
) -> AttackResult:
    def result(happened: str, stopped_by: str, *, held: bool | None) -> AttackResult:
        return AttackResult(attack.name, way, attack.expected, happened, stopped_by, held)

    policy = _policy(way, outside, floor)
    try:
        given = attack.given(outside)
    except NotOnThisMachine as missing:
        return result(f"could not be tried: {missing}", "", held=None)
    try:
        for _ in range(attack.times):
            done = await run_hostile(
                way,
                attack.function,
                given,
                bounds=attack.bounds,
                policy=policy,
                **({"scratch": True} if attack.scratch and way == NODE else {}),
            )
    except IsolationRefused as error:
        return result("not run: a layer that must be on is missing", str(error), held=True)
    except RatchetError as error:
        return result(f"the attack could not be run: {error}", "", held=False)
    broken = _broken(done)
    if broken:
        return result(f"the attack itself failed: {broken}", "", held=False)
    got = attack.got(done, outside)
    if got:
        return result(got, "", held=False)
    return result(_ending(done), _stopped_by(done, attack), held=True)


async def run_hostile(
    way: str,
    name: str,
    given: object = None,
    *,
    bounds: Bounds | None = None,
    policy: Policy | None = None,
    **more: Any,
) -> Finished:
    """Run one function of the hostile code as a node, or as a program; `more` is for a node."""
    bounds, policy = bounds or Bounds(wall_seconds=20), policy or Policy()
    text = json.dumps(given)
    if way == NODE:
        return await run(Node(HOSTILE, name, **more), stdin=text.encode(), bounds=bounds, policy=policy)
    seen = replace(policy, readable=(*policy.readable, HOSTILE))
    return await run(hostile_argv(name, text), cwd=Path("/tmp"), bounds=bounds, policy=seen)


def hostile_argv(name: str, given: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _CALL, str(HOSTILE.parent), name, given]


def processes_with(mark: str) -> list[int]:
    """Processes of the whole machine that have `mark` in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - `glob` minds entries that vanish
        try:
            if mark.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def _policy(way: str, outside: OutsideWorld, floor: frozenset[Layer] | None) -> Policy:
    if way == NODE:
        return Policy(floor=floor)
    if way == COMMAND:
        return Policy(floor=floor, writable=(outside.workspace,))
    program = Invocation((sys.executable,), outside.workspace, {}, writable=(outside.workspace,))
    return replace(program.policy, floor=floor)


class NotOnThisMachine(Exception):
    """What an attack is for is not there, so that nothing would be known from its end."""


def _there(path: str) -> str:
    if not os.path.lexists(path):
        raise NotOnThisMachine(f"this machine has no {path}")
    return path


def _disk() -> str:
    disks = (str(path) for path in Path("/dev").iterdir() if path.is_block_device())
    return next(disks, "") or _there("/dev/mem")


def _file_of_home() -> str:
    """One that is closed to others if there is any, such as a login."""
    home = Path.home()
    files = [path for path in (*home.glob(".*"), *home.glob(".*/*"), *home.glob("*")) if path.is_file()]
    if not files:
        raise NotOnThisMachine(f"there is no file in {home}")
    return str(min(files, key=lambda path: path.stat().st_mode & 0o077))


def _touched(path: Path) -> str:
    path.touch()
    return str(path)


# Which layer answers so, the first of those that are on.
_ANSWERS = {
    errno.ENOENT: (Layer.MOUNT,),
    errno.ENOTDIR: (Layer.MOUNT,),
    errno.EROFS: (Layer.MOUNT,),
    errno.ENXIO: (Layer.MOUNT,),
    errno.ENOSPC: (Layer.MOUNT,),
    errno.EACCES: (Layer.LANDLOCK, Layer.MOUNT, Layer.CAPABILITIES),
    errno.EPERM: (Layer.SECCOMP, Layer.LANDLOCK, Layer.CAPABILITIES),
    errno.ENOSYS: (Layer.SECCOMP,),
    errno.EAFNOSUPPORT: (Layer.SECCOMP,),
    errno.ESRCH: (Layer.PID,),
    errno.ECONNREFUSED: (Layer.NETWORK,),
    errno.ENETUNREACH: (Layer.NETWORK,),
    errno.EFBIG: (Layer.LIMITS,),
    errno.EMFILE: (Layer.LIMITS,),
    errno.ENOMEM: (Layer.LIMITS,),
    errno.EAGAIN: (Layer.LIMITS,),
}
_NUMBERED = re.compile(r"\[Errno (\d+)\]")
_BOUNDS = {
    Stopped.WALL: "wall_seconds",
    Stopped.CPU: "cpu_seconds",
    Stopped.MEMORY: "memory_bytes",
    Stopped.PROCESSES: "processes",
    Stopped.DISK: "disk_bytes",
    Stopped.OUTPUT: "output_bytes",
}


def _last_words(done: Finished) -> str:
    return last_line(decoded(done.stderr))[:200] or done.problem or ""


def _broken(done: Finished) -> str:
    """What is wrong with an attack that neither ended well nor was stopped, so that nothing is known."""
    if done.exit_code in (0, None):
        return ""
    words = _last_words(done)
    return "" if "MemoryError" in words or _NUMBERED.search(words) or "TimeoutError" in words else words


def _ending(done: Finished) -> str:
    if done.stopped or done.signal:
        return done.problem or ""
    return "got nothing" if done.ok else _last_words(done)


def _stopped_by(done: Finished, attack: Attack) -> str:
    if done.stopped:
        return done.bounded_by.get(_BOUNDS.get(done.stopped, ""), str(done.stopped))
    words = _last_words(done)
    if done.ok or not (found := _NUMBERED.search(words)):
        by = attack.by if done.ok else (Layer.LIMITS,)
        return ", ".join(str(each) for each in by if each in done.layers or each not in set(Layer))
    answers = [each for each in _ANSWERS.get(int(found[1]), ()) if each in done.layers]
    return str(next((each for each in answers if each in attack.by), next(iter(answers), "")))


@contextlib.contextmanager
def _outside() -> Iterator[Callable[[], OutsideWorld]]:
    """Makes what each attack must not reach, and servers that no attack may reach."""
    with (
        tempfile.TemporaryDirectory(prefix="ratchet-attack-") as directory,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        name = f"ratchet-attack-{uuid.uuid4().hex}"
        abstract.bind("\0" + name)
        abstract.listen()
        with greeting(server), greeting(abstract):
            yield lambda: OutsideWorld(Path(directory), server.getsockname(), name)


@contextlib.contextmanager
def greeting(server: socket.socket, text: str = _SECRET) -> Iterator[None]:
    """Send `text` to all who connect."""

    def greet() -> None:
        with contextlib.suppress(OSError):
            while True:
                guest, _ = server.accept()
                with guest:
                    guest.sendall(text.encode())

    thread = threading.Thread(target=greet)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
