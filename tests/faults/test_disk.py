"""What a power cut may take, and what it may not."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.disk import Disk
from tests.faults.shim import Entry, Op

FILE = 77


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "old").write_bytes(b"old")
    return tmp_path / "home"


def opened(path: Path, inode: int = FILE) -> Entry:
    return Entry(Op.OPEN, 0, 0, inode, 0, os.fsencode(path))


def written(content: bytes, offset: int = 0, inode: int = FILE) -> Entry:
    return Entry(Op.WRITE, 0, 0, inode, offset, content)


def synced(path: Path, inode: int = FILE) -> Entry:
    op = Op.SYNC_DIRECTORY if path.is_dir() else Op.SYNC
    return Entry(op, 0, 0, inode, 0, os.fsencode(path))


def renamed(old: Path, new: Path) -> Entry:
    return Entry(Op.RENAME, 0, 0, 0, len(os.fsencode(old)), os.fsencode(old) + os.fsencode(new))


def left(home: Path, *entries: Entry, look: Callable[[], object]) -> list[object]:
    """What is found after power cuts of many kinds."""
    before = {path: path.read_bytes() for path in home.iterdir()}
    found = []
    for seed in range(40):
        for path in home.iterdir():
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
        disk = Disk(home)
        disk.follow(entries)
        disk.cut(random.Random(seed))
        found.append(look())
    return found


def content(path: Path) -> Callable[[], bytes | None]:
    return lambda: path.read_bytes() if path.exists() else None


def test_what_was_synced_with_its_name_is_there_after_every_cut(home: Path) -> None:
    new = home / "new"
    entries = (opened(new), written(b"new"), synced(new), synced(home))
    assert set(left(home, *entries, look=content(new))) == {b"new"}


def test_a_file_that_was_not_synced_may_be_whole_empty_or_gone(home: Path) -> None:
    new = home / "new"
    assert set(left(home, opened(new), written(b"new"), look=content(new))) == {b"new", b"", None}


def test_a_synced_file_without_a_synced_name_may_be_gone(home: Path) -> None:
    new = home / "new"
    assert set(left(home, opened(new), written(b"new"), synced(new), look=content(new))) == {b"new", None}


def test_a_synced_name_may_lead_to_blocks_that_were_never_written(home: Path) -> None:
    new, long = home / "new", b"x" * 512 + b"y" * 512
    found = set(left(home, opened(new), written(long), synced(home), look=content(new)))
    assert {b"", long, b"\0" * 512 + b"y" * 512} <= found
    assert None not in found


def test_a_rename_that_was_not_synced_leaves_the_old_or_the_new_and_never_neither(home: Path) -> None:
    new, old = home / "new", home / "old"
    entries = (opened(new), written(b"new"), synced(new), synced(home), renamed(new, old))
    assert set(left(home, *entries, look=content(old))) == {b"old", b"new"}


def test_an_old_file_keeps_what_was_synced_under_what_was_written_since(home: Path) -> None:
    old = home / "old"
    inode = old.stat().st_ino
    disk = Disk(home)
    disk.follow((written(b"XX", 1, inode), synced(old, inode), written(b"Y", 0, inode)))
    disk.cut(random.Random(1))
    assert old.read_bytes() in (b"oXX", b"YXX")
