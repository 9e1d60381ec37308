from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.doctor.attack import HOSTILE, hostile_argv, processes_with
from ratchet.sandbox import Bounds, Broken, Finished, Node, Policy, Stopped, run
from tests.sandbox.ways import attack, soon, unconfined
from tests.waiting import eventually_async

ANY_NAMESPACE = 0x10000000


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process of this machine that an attacker would like to reach."""
    with started(["/bin/sleep", "60"]) as process:
        yield process.pid


def test_a_process_outside_cannot_be_signalled(way: str, bystander: int) -> None:
    assert unconfined("signal_process", bystander) is True
    assert not attack(way, "signal_process", bystander).ok
    assert not attack(way, "signal_process", os.getpid()).ok


def test_the_parent_cannot_be_killed(way: str) -> None:
    for name in ("signal_parent", "signal_everyone"):
        attack(way, name)
        assert attack(way, "environment").ok


def test_a_process_outside_cannot_be_traced(way: str, bystander: int) -> None:
    assert unconfined("trace", bystander) is True
    assert not attack(way, "trace", bystander).ok
    assert not attack(way, "trace", 0).ok


def test_no_namespace_can_be_entered(way: str) -> None:
    assert unconfined("unshare", ANY_NAMESPACE) is True
    assert not attack(way, "unshare", ANY_NAMESPACE).ok
    assert not attack(way, "mount").ok


def test_no_capability_is_left() -> None:
    # A node cannot even ask: see `test_places`, which looks at one from outside.
    assert attack("command", "capabilities").value == "0" * 48
    assert not attack("node", "capabilities").ok


def test_a_node_starts_no_process_and_no_program() -> None:
    assert unconfined("program", "/bin/true") == 0
    assert not attack("node", "program", "/bin/true").ok
    assert not attack("node", "fork", 1).ok


def test_a_node_may_use_threads_and_event_loops() -> None:
    source = """
import asyncio, concurrent.futures, subprocess, threading
async def twice(x):
    return await asyncio.to_thread(lambda: x * 2)
def run(x):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return [asyncio.run(twice(x)), list(pool.map(lambda y: y + x, range(3)))]
"""
    done = asyncio.run(run(Node(source), stdin=b"3"))
    assert (done.value, done.problem) == ([6, [3, 4, 5]], None)


def test_a_daemon_does_not_outlive_its_command() -> None:
    mark = uuid.uuid4().hex
    subprocess.run(hostile_argv("survivor", f'"{mark}"'), check=True, stdout=subprocess.DEVNULL)
    assert soon(lambda: processes_with(mark))
    for pid in processes_with(mark):
        os.kill(pid, signal.SIGKILL)
    assert soon(lambda: not processes_with(mark))
    done = attack("command", "survivor", mark)
    assert done.ok
    assert processes_with(mark) == []


def test_a_daemon_that_holds_the_output_does_not_hold_up_the_end() -> None:
    done = asyncio.run(run(["sh", "-c", "sleep 30 & echo out"], cwd=Path("/")))
    assert (done.exit_code, done.stdout) == (0, b"out\n")
    assert done.wall_ms < 20_000


def test_cancelling_kills_the_whole_tree(way: str) -> None:
    mark = uuid.uuid4().hex

    async def cancelled() -> None:
        work = (
            Node("import time\ndef run(_):\n    time.sleep(60)")
            if way == "node"
            else ["sh", "-c", tree(mark)]
        )
        task = asyncio.create_task(run(work, cwd=Path("/")))
        if way == "node":
            await asyncio.sleep(0.5)
        else:
            await eventually_async(lambda: len(processes_with(mark)) >= 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes_with(mark) == []

    asyncio.run(cancelled())


def tree(mark: str) -> str:
    """A line for the shell: a child that ignores being asked to end, and one in a session of its own."""
    return f"(trap '' TERM; sleep 60; : {mark}) & setsid sh -c 'sleep 61; : {mark}' & wait; : {mark}"


DIES = """
import asyncio, sys
from pathlib import Path
from ratchet.sandbox import Node, run
async def main():
    node = Node("import time\\ndef run(_):\\n    time.sleep(60)")
    works = [asyncio.create_task(run(["sh", "-c", sys.argv[1]], cwd=Path("/"))), asyncio.create_task(run(node))]
    await asyncio.gather(*works)
asyncio.run(main())
"""


@pytest.mark.soak
def test_nothing_outlives_a_ratchet_that_was_killed() -> None:
    mark = uuid.uuid4().hex
    with started([sys.executable, "-c", DIES, tree(mark)]) as process:
        # The warm parent, a launcher and its first process, a parent of nodes and who waits for it, a node, the shells.
        assert soon(lambda: len(descendants(process.pid)) >= 10 and len(processes_with(mark)) >= 3, 20)
        family = descendants(process.pid)
    assert soon(lambda: not processes_with(mark))
    assert soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))


FORKS = """
import asyncio, os, sys, time
from pathlib import Path
from ratchet.sandbox import start
async def main():
    async with start(["sh", "-c", "echo ready; " + sys.argv[1]], cwd=Path("/")) as running:
        async for _ in running:
            if os.fork() == 0:
                time.sleep(600)
asyncio.run(main())
"""


@pytest.mark.soak
def test_a_fork_of_ratchet_keeps_nothing_alive() -> None:
    mark = uuid.uuid4().hex
    with started([sys.executable, "-c", FORKS, tree(mark)]) as process:
        assert soon(lambda: len(children_of(process.pid)) == 2 and len(processes_with(mark)) >= 4, 20)
        (warm,) = children_of(process.pid) & set(processes_with("inside.warm"))
        (fork,) = children_of(process.pid) - {warm}
        family = {warm, *descendants(warm)}
    try:
        assert soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
        assert Path(f"/proc/{fork}").exists()
    finally:
        os.kill(fork, signal.SIGKILL)


INTERRUPTED = """
import asyncio, os, signal
from pathlib import Path
from ratchet.sandbox import Node, run, start
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
for number in ENDING:
    signal.signal(number, lambda *_: None)
node = Node("import time\\ndef run(_):\\n    time.sleep(0.5)\\n    return 1")
async def main():
    beside = asyncio.create_task(run(node))
    async with start(["sh", "-c", "echo ready; sleep 0.5"], cwd=Path("/")) as running:
        async for _ in running:
            for number in ENDING:
                os.killpg(0, number)
        print((await running.wait()).ok, (await beside).ok)
asyncio.run(main())
"""


def test_a_signal_to_the_terminal_is_for_ratchet_and_not_for_what_it_runs() -> None:
    words = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(words, capture_output=True, text=True, check=False, start_new_session=True)
    assert (done.stdout, done.stderr) == ("True True\n", "")


@contextlib.contextmanager
def started(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end."""
    process = subprocess.Popen(argv)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def descendants(pid: int) -> set[int]:
    children = children_of(pid)
    return children.union(*map(descendants, children))


def children_of(pid: int) -> set[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return {int(each) for task in tasks for each in (task / "children").read_text().split()}
    except FileNotFoundError:  # it has just ended
        return set()


def test_a_parent_of_nodes_that_was_killed_is_an_error_and_then_replaced() -> None:
    slow = Node(
        "import sys, time\ndef run(_):\n    print('begun', flush=True)\n    time.sleep(600)",
        modules=("colorsys",),
    )
    quick = Node("def run(x):\n    return x", modules=("colorsys",))

    async def killed() -> list[Finished | BaseException]:
        for _ in range(8):
            assert (await run(quick, stdin=b"1")).ok
        begun = asyncio.Event()
        running = asyncio.create_task(run(slow, overhear=lambda _: begun.set()))
        await begun.wait()
        for pid in node_parents():
            kill(pid)
        ends = await asyncio.gather(running, return_exceptions=True)
        return [*ends, *[await run(quick, stdin=b"2") for _ in range(4)]]

    broken, *again = asyncio.run(killed())
    assert isinstance(broken, Broken)
    assert [end.value for end in again if isinstance(end, Finished)] == [2, 2, 2, 2]


def node_parents() -> list[int]:
    """Those processes below this one that are the first of a pid namespace, but of none inside another."""
    return [pid for pid in descendants(os.getpid()) if namespace_depth(pid) == 2]


def kill(pid: int) -> None:
    """Kill it, and wait until it is dead; whoever started it has not waited for it."""
    life = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([life], [], [], 5)[0]
    os.close(life)


def namespace_depth(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(len(line.split()) - 1 for line in status.splitlines() if line.startswith("NSpid"))


def test_a_warm_parent_that_was_killed_is_replaced() -> None:
    assert asyncio.run(run(["true"], cwd=Path("/"))).ok
    for pid in children_of(os.getpid()):
        if b"inside.warm" in Path(f"/proc/{pid}/cmdline").read_bytes():
            kill(pid)
    assert asyncio.run(run(["true"], cwd=Path("/"))).ok


@pytest.mark.soak
def test_hundreds_run_at_once_and_each_gets_its_own_answer() -> None:
    async def many() -> list[Finished]:
        node = Node("import time\ndef run(x):\n    time.sleep(0.2)\n    return x")
        nodes = [run(node, stdin=str(number).encode()) for number in range(200)]
        commands = [run(["sh", "-c", f"sleep 0.2; echo {number}"], cwd=Path("/")) for number in range(60)]
        return await asyncio.gather(*nodes, *commands)

    done = asyncio.run(many())
    assert [end.value for end in done] == [*range(200), *range(60)]


def test_runs_from_several_threads_do_not_mix() -> None:
    import concurrent.futures

    def one(number: int) -> list[object]:
        node = Node("def run(x):\n    return x")
        return [asyncio.run(run(node, stdin=str(number).encode())).value for _ in range(5)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(8))) == [[number] * 5 for number in range(8)]


def test_usage_is_told_truthfully(way: str) -> None:
    done = attack(way, "burn", 0.4)
    # One thread uses no more than the time that passes.
    assert 395 < done.cpu_ms < done.wall_ms + 50


def test_usage_counts_children_that_nobody_waited_for() -> None:
    burn = " ".join(map(shlex.quote, hostile_argv("burn", "0.4")))
    line = f"(setsid {burn} > /tmp/done &); until [ -s /tmp/done ]; do sleep 0.05; done"
    policy = Policy(readable=(HOSTILE.parent,))
    done = asyncio.run(run(["sh", "-c", line], cwd=Path("/"), policy=policy))
    assert done.ok
    assert done.cpu_ms > 395


def test_what_a_stopped_run_used_is_told(way: str) -> None:
    done = attack(way, "loop", bounds=Bounds(wall_seconds=0.5))
    assert (done.stopped, done.exit_code, done.signal) == (Stopped.WALL, None, None)
    assert 0 < done.cpu_ms < done.wall_ms + 50
    assert 400 < done.wall_ms < 5_000
