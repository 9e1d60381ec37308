"""A session's directory is its own, and goes with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.engines.engine import Fault
from ratchet.engines.session_home import session_home


def live(home: Path) -> list[Path]:
    return list((home / "sessions" / "live").iterdir())


def test_it_is_there_for_its_owner_only_and_then_gone(tmp_path: Path) -> None:
    async def run() -> None:
        async with session_home(tmp_path) as directory:
            assert directory.stat().st_mode & 0o077 == 0
            (directory / "file").write_text("x")

    asyncio.run(run())
    assert live(tmp_path) == []


def test_that_of_a_living_session_is_left_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with session_home(tmp_path) as first:
            async with session_home(tmp_path) as second:
                assert first != second
            assert first.exists()

    asyncio.run(run())


def test_that_of_a_killed_process_is_removed_by_the_next_session(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from ratchet.engines.session_home import session_home\n"
        "async def run():\n"
        "    async with session_home(Path(sys.argv[1])):\n"
        "        print('in', flush=True); await asyncio.sleep(60)\n"
        "asyncio.run(run())"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
    assert len(live(tmp_path)) == 1

    async def run() -> list[Path]:
        async with session_home(tmp_path) as directory:
            return [each for each in live(tmp_path) if each != directory]

    assert asyncio.run(run()) == []


def test_directories_without_rights_and_links_do_not_stop_its_removal(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    async def run() -> None:
        async with session_home(tmp_path / "home") as directory:
            (directory / "closed" / "deep").mkdir(parents=True)
            (directory / "link").symlink_to(outside)
            (directory / "closed").chmod(0o000)

    asyncio.run(run())
    assert live(tmp_path / "home") == []
    assert outside.exists()


def test_directories_however_deep_stop_neither_its_removal_nor_the_next_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with session_home(tmp_path / "home") as directory:
            place = os.open(directory, os.O_RDONLY)
            for _ in range(2_000):
                os.mkdir("deep", dir_fd=place)
                place, above = os.open("deep", os.O_RDONLY, dir_fd=place), place
                os.close(above)
            os.close(place)

    for _ in range(2):
        asyncio.run(run())
        assert live(tmp_path / "home") == []


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("in the way")

    async def run() -> None:
        async with session_home(tmp_path):
            pass

    with pytest.raises(Fault, match="no directory for a session"):
        asyncio.run(run())
