"""Slots: never two holders, first come, first served, and free again however the holder ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.research.adapter import Program, Slots
from ratchet.research.measurement import SlotPool
from tests.research.measurement.conftest import COMMAND, NODE, PYTHON, MakeBench, scored_by

TWO = Slots(kind="gpu", names=("0", "1"))
SEVENTH = Slots(kind="gpu", names=("7",), devices=(("7", ("/dev/zero",)),))
ONE = Slots(kind="gpu", names=("GPU-a/b",))
FIRST = str(min(os.sched_getaffinity(0)))
HOLD = """
import asyncio, sys
from pathlib import Path
from ratchet.research.adapter import Slots
from ratchet.research.measurement import SlotPool

async def main():
    async with SlotPool(Slots(kind="gpu", names=tuple(sys.argv[2:])), Path(sys.argv[1])).lease() as lease:
        print(lease.name, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@contextmanager
def holder(directory: Path, slots: Slots) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a slot until it is told to end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory), *slots.names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_no_slot_is_held_twice_in_one_process(tmp_path: Path) -> None:
    held: set[str] = set()
    seen: list[str] = []

    async def hold(number: int) -> None:
        pool = SlotPool(TWO, tmp_path)
        async with pool.lease() as lease:
            assert lease.name not in held
            held.add(lease.name)
            for _ in range(3):
                await asyncio.sleep(0)
            held.remove(lease.name)
            seen.append(lease.name)

    async def everybody() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(hold(number))

    asyncio.run(everybody())
    assert set(seen) == {"0", "1"}
    assert len(seen) == 50


def test_slots_are_given_first_come_first_served(tmp_path: Path) -> None:
    order: list[int] = []

    async def hold(pool: SlotPool, number: int) -> None:
        async with pool.lease():
            order.append(number)
            await asyncio.sleep(0)

    async def everybody() -> None:
        pool = SlotPool(ONE, tmp_path)
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(hold(pool, number))

    asyncio.run(everybody())
    assert order == list(range(20))


@pytest.mark.soak
def test_two_processes_never_hold_the_same_slot(tmp_path: Path) -> None:
    with holder(tmp_path, TWO) as first, holder(tmp_path, TWO) as second:
        assert {read_line(first), read_line(second)} == {"0", "1"}

        async def try_it() -> str:
            async with asyncio.timeout(0.3), SlotPool(TWO, tmp_path).lease() as lease:
                return lease.name

        with pytest.raises(TimeoutError):
            asyncio.run(try_it())


@pytest.mark.soak
@pytest.mark.parametrize("end", ["killed", "told"])
def test_a_slot_is_free_when_its_holder_is_gone(tmp_path: Path, end: str) -> None:
    with holder(tmp_path, ONE) as other:
        assert read_line(other) == "GPU-a/b"

        async def wait_for_it() -> str:
            waiting = asyncio.create_task(leased())
            await asyncio.sleep(0)
            if end == "killed":
                other.send_signal(signal.SIGKILL)
            else:
                assert other.stdin is not None
                other.stdin.write("\n")
                other.stdin.flush()
            async with asyncio.timeout(60):
                return await waiting

        async def leased() -> str:
            async with SlotPool(ONE, tmp_path).lease() as lease:
                return lease.name

        assert asyncio.run(wait_for_it()) == "GPU-a/b"


def test_whoever_gives_up_waiting_leaves_the_line(tmp_path: Path) -> None:
    async def scene() -> list[str]:
        pool, seen = SlotPool(ONE, tmp_path), []

        async def wait(name: str) -> None:
            async with pool.lease():
                seen.append(name)

        async with pool.lease():
            first, second = asyncio.create_task(wait("first")), asyncio.create_task(wait("second"))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
        await second
        return seen

    assert asyncio.run(scene()) == ["second"]


def test_a_block_that_raises_gives_its_slot_back(tmp_path: Path) -> None:
    async def scene() -> None:
        pool = SlotPool(ONE, tmp_path)
        for _ in range(3):
            with pytest.raises(KeyError):
                async with pool.lease():
                    raise KeyError

    asyncio.run(scene())


def test_a_fork_does_not_keep_the_slot_of_its_parent(tmp_path: Path) -> None:
    read, write = os.pipe()

    async def scene() -> int:
        async with SlotPool(ONE, tmp_path).lease():
            child = os.fork()
            if child == 0:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
        async with asyncio.timeout(30), SlotPool(ONE, tmp_path).lease():
            return child

    child = asyncio.run(scene())
    os.close(write)
    assert os.waitpid(child, 0) == (child, 0)
    os.close(read)


@pytest.mark.parametrize("count", [None, 1, 7])
def test_without_names_there_are_as_many_slots_as_cpus_or_as_are_wanted(
    tmp_path: Path, count: int | None
) -> None:
    async def scene() -> int:
        pool, held, most = SlotPool(Slots(count=count), tmp_path), 0, 0

        async def hold() -> None:
            nonlocal held, most
            async with pool.lease() as lease:
                assert (lease.name, lease.cpus, lease.environment) == ("", (), {})
                held, most = held + 1, max(most, held + 1)
                await asyncio.sleep(0)
                held -= 1

        await asyncio.gather(*(hold() for _ in range(20)))
        return most

    assert asyncio.run(scene()) == (count or len(os.sched_getaffinity(0)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["9000", "0-9999999999", "one", "", "1-0", "-1", "٣"])
def test_a_cpu_that_is_not_there_is_misuse(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misuse):
        SlotPool(Slots(kind="cpu", names=(name,)), tmp_path)


def test_an_unknown_kind_of_slot_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="'tpu'"):
        SlotPool(Slots(kind="tpu"), tmp_path)


def test_a_gpu_slot_is_told_to_both_programs(make_bench: MakeBench) -> None:
    recipe = "import os\ndef solve(asked):\n    return os.environ['CUDA_VISIBLE_DEVICES']\n"
    evaluate = """
        import os
        def score(asked):
            return {"score": float(asked["trial"]["answer"] == os.environ["CUDA_VISIBLE_DEVICES"] == "7")}
    """
    measured = make_bench(recipe, evaluate, slots=SEVENTH).measure()
    assert (measured.score, measured.facts["slot"]) == (1.0, "7")


LEAVE = f"""
    import json, os
    def solve(asked):
        before = sorted(os.sched_getaffinity(0))
        try:
            os.sched_setaffinity(0, range({os.cpu_count()}))
        except PermissionError:
            pass
        return [before, sorted(os.sched_getaffinity(0))]
    if __name__ == "__main__":
        print(json.dumps(solve(None)))
"""


@pytest.mark.parametrize("program", [NODE, COMMAND])
def test_a_cpu_slot_cannot_be_left(make_bench: MakeBench, program: Program) -> None:
    evaluate = f"""
        import json, os
        def score(asked):
            trial = asked["trial"]
            seen = trial["answer"] if "answer" in trial else json.load(open(trial["stdout"]))
            assert seen == [[{FIRST}]] * 2, seen
            return {{"score": float(list(os.sched_getaffinity(0)) == [{FIRST}])}}
    """
    bench = make_bench(LEAVE, evaluate, trial=program, slots=Slots(names=(FIRST,)))
    assert bench.measure().score == 1.0


def test_a_command_without_a_slot_may_choose_its_cpus(make_bench: MakeBench) -> None:
    every = json.dumps(sorted(os.sched_getaffinity(0)))
    code = f"import os; os.sched_setaffinity(0, {every}); print(len(os.sched_getaffinity(0)))"
    program = Program(argv=(*PYTHON, "-c", code))
    evaluate = "def score(asked):\n    return {'score': float(open(asked['trial']['stdout']).read())}"
    bench = make_bench("x = 1\n", evaluate, trial=program, evaluator=scored_by())
    assert bench.measure().score == len(os.sched_getaffinity(0))


def test_measurements_side_by_side_share_the_slots(make_bench: MakeBench) -> None:
    nodes = tuple((name, ("/dev/zero",)) for name in TWO.names)
    bench = make_bench(slots=replace(TWO, devices=nodes))

    async def many() -> list[str]:
        took = [bench.meter.measure(bench.base, seed=seed) for seed in range(6)]
        return [each.facts["slot"] for each in await asyncio.gather(*took)]

    assert set(asyncio.run(many())) == {"0", "1"}
