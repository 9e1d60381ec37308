"""Keeping what a server prints in a directory that is not ours."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from ratchet.agents.contract import Role
from ratchet.agents.servers.process import MOST_BYTES, Printed


def test_a_full_file_gives_way_to_the_next_and_only_the_one_before_is_kept(tmp_path: Path) -> None:
    with closing(Printed(tmp_path, Role.TUNER)) as printed:
        for letter in (b"a", b"b", b"c"):
            printed.take(letter * MOST_BYTES)

    assert (tmp_path / "logs" / "tuner.out").read_bytes() == b"c" * MOST_BYTES
    assert (tmp_path / "logs" / "tuner.out.1").read_bytes() == b"b" * MOST_BYTES


def test_what_an_earlier_server_printed_is_kept(tmp_path: Path) -> None:
    for line in (b"first\n", b"second\n"):
        with closing(Printed(tmp_path, Role.RUNNER)) as printed:
            printed.take(line)

    assert (tmp_path / "logs" / "runner.out").read_text() == "first\nsecond\n"


@pytest.mark.parametrize("trap", ["folder", "file", "pipe", "directory"])
def test_nothing_is_written_where_an_agent_laid_a_trap_and_the_end_is_still_known(
    tmp_path: Path, trap: str
) -> None:
    outside, version = tmp_path / "outside", tmp_path / "version"
    outside.mkdir()
    (outside / "runner.out").write_text("precious")
    version.mkdir()
    logs = version / "logs"
    if trap == "folder":
        logs.symlink_to(outside)
    else:
        logs.mkdir()
    if trap == "file":
        (logs / "runner.out").symlink_to(outside / "runner.out")
    elif trap == "pipe":
        os.mkfifo(logs / "runner.out")
    elif trap == "directory":
        (logs / "runner.out").mkdir()

    with closing(Printed(version, Role.RUNNER)) as printed:
        printed.take(b"hello")

    assert (outside / "runner.out").read_text() == "precious"
    assert printed.tail == "hello"


def test_a_file_that_cannot_be_put_aside_ends_the_keeping_and_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "logs" / "runner.out.1").mkdir(parents=True)
    with closing(Printed(tmp_path, Role.RUNNER)) as printed:
        printed.take(b"a" * MOST_BYTES)
        printed.take(b"b")

    assert printed.tail.endswith("ab")
    assert (tmp_path / "logs" / "runner.out").stat().st_size == MOST_BYTES
