"""The directories that judges work in."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.judges.scratch import in_thread, scratch
from tests.waiting import eventually_async

HOLDS = """
import asyncio, time
from ratchet.judges.scratch import scratch
async def hold():
    async with scratch() as place:
        (place / "locked").mkdir()
        (place / "locked" / "file").touch()
        print(place, flush=True)
        {then}
asyncio.run(hold())
"""


def held_by_another(temporary: Path, then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS.format(then=then)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )


def age(directory: Path) -> None:
    os.utime(directory, (0, 0))


@pytest.mark.soak
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_holds_is_not(tmp_path: Path) -> None:
    with (
        held_by_another(tmp_path, "time.sleep(60)") as killed,
        held_by_another(tmp_path, "time.sleep(60)") as living,
    ):
        assert killed.stdout is not None
        assert living.stdout is not None
        left, held = Path(killed.stdout.readline().strip()), Path(living.stdout.readline().strip())
        (left / "link").symlink_to(tmp_path)
        killed.kill()
        killed.wait()
        age(left)
        age(held)
        with held_by_another(tmp_path, "pass") as next_one:
            next_one.wait()
        assert (left.exists(), held.exists()) == (False, True)
        living.kill()
    assert tmp_path.exists()


@pytest.mark.soak
def test_a_directory_that_was_just_made_is_left_alone(tmp_path: Path) -> None:
    fresh = tmp_path / "ratchet-judge-fresh"
    fresh.mkdir()
    with held_by_another(tmp_path, "pass") as process:
        process.wait()
    assert fresh.exists()


def test_it_is_gone_after_a_failure(tmp_path: Path, nothing_left_behind: None) -> None:
    async def fails() -> None:
        async with scratch() as place:
            (place / "file").write_text("x")
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        asyncio.run(fails())


def test_a_cancellation_waits_for_the_thread() -> None:
    begun: list[int] = []
    done: list[int] = []

    def work() -> None:
        begun.append(1)
        asyncio.run(asyncio.sleep(0.2))
        done.append(1)

    async def cancelled() -> None:
        task = asyncio.create_task(in_thread(work))
        await eventually_async(lambda: bool(begun))
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert done == [1]

    asyncio.run(cancelled())
