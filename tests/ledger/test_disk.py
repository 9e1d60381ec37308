"""When files that rows tell of are on disk."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import Ledger
from ratchet.ledger.disk import name_files
from tests.ledger import disk_actors
from tests.ledger.conftest import MakeLedger
from tests.ledger.disks import CUT, JOURNALED, on_disk

COUNT = sa.text("SELECT count(*) FROM artifacts")
# From then on a process has a journal.
SELDOM = 8


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were waited for, in order."""
    files: list[str] = []
    watch(monkeypatch, lambda descriptor: files.append(str(Path(f"/proc/self/fd/{descriptor}").readlink())))
    return files


def watch(monkeypatch: pytest.MonkeyPatch, look: Callable[[int], object]) -> None:
    """Look before every wait for the disk."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(_wait, getattr(os, name), look))


def _wait(really: Callable[[int], None], look: Callable[[int], object], descriptor: int) -> None:
    look(descriptor)
    really(descriptor)


def visible(ledger: Ledger) -> int:
    with ledger.read() as tx:
        return int(tx.connection.execute(COUNT).scalar_one())


def put(ledger: Ledger, *contents: bytes) -> list[str]:
    with ledger.write() as tx:
        return [ledger.artifacts.put(tx, content, name="it").sha256 for content in contents]


def settle_often(ledger: Ledger) -> None:
    for number in range(SELDOM + 1):
        put(ledger, b"often %d" % number)


def test_who_settles_seldom_waits_for_each_file_and_its_directory(
    make_ledger: MakeLedger, waits: list[str]
) -> None:
    ledger = make_ledger("sqlite")
    put(ledger, b"first")
    waits.clear()
    hashes = put(ledger, b"one", b"two")
    files = [str(ledger.artifacts.path(each)) for each in hashes]
    assert [Path(each).parent.name for each in waits if "/incoming/" in each] == ["incoming"] * 2
    assert {str(Path(each).parent) for each in files} <= set(waits)
    assert not (ledger.artifacts.root / "journal").exists()


def test_who_settles_often_waits_once_for_all_files_of_a_transaction(
    make_ledger: MakeLedger, waits: list[str]
) -> None:
    ledger = make_ledger("sqlite")
    settle_often(ledger)
    waits.clear()
    hashes = put(ledger, *(b"content %d" % number for number in range(10)))
    assert [Path(each).parts[-3] for each in waits] == ["journal"]
    assert [ledger.artifacts.read(each) for each in hashes] == [b"content %d" % n for n in range(10)]


def test_what_is_large_is_waited_for_at_once(make_ledger: MakeLedger, waits: list[str]) -> None:
    ledger = make_ledger("sqlite")
    settle_often(ledger)
    waits.clear()
    with ledger.write() as tx:
        large = ledger.artifacts.put(tx, b"x" * 100_000, name="large")
        assert any("/incoming/" in each for each in waits)
        assert ledger.artifacts.path(large.sha256).exists()


@pytest.mark.parametrize("often", [False, True])
def test_the_row_is_there_only_when_its_file_is_certain(
    make_ledger: MakeLedger, monkeypatch: pytest.MonkeyPatch, often: bool
) -> None:
    ledger = make_ledger("sqlite")
    if often:
        settle_often(ledger)
    known = visible(ledger)
    seen: list[tuple[int, bool]] = []
    named = ledger.artifacts.path(hashlib.sha256(b"new").hexdigest())
    watch(monkeypatch, lambda _: seen.append((visible(ledger), named.exists())))
    put(ledger, b"new")
    # Nor has a file its name before its content is certain; the last wait of who settles seldom is for the name.
    assert seen
    assert {rows for rows, _ in seen} == {known}
    assert not seen[0][1]
    assert visible(ledger) == known + 1


def stored(ledger: Ledger) -> list[Path]:
    return [path for _, path in ledger.artifacts.stored()]


@pytest.mark.parametrize("often", [False, True])
def test_a_file_that_cannot_be_made_certain_gives_no_row(
    make_ledger: MakeLedger, monkeypatch: pytest.MonkeyPatch, often: bool
) -> None:
    ledger = make_ledger("sqlite")
    if often:
        settle_often(ledger)
    known, files = visible(ledger), stored(ledger)

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(LedgerUnavailable, match="Input/output error"):
        put(ledger, b"new")
    monkeypatch.undo()
    assert visible(ledger) == known
    assert stored(ledger) == files
    put(ledger, b"new")
    assert visible(ledger) == known + 1


@pytest.mark.soak
@pytest.mark.parametrize("feature", ["has_journal", "^has_journal"])
def test_a_power_cut_takes_no_file_away_that_a_row_tells_of(tmp_path: Path, feature: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    kept = on_disk(
        JOURNALED, disk, disk_actors.copy_while_writing, image=str(tmp_path / "image"), feature=feature
    )
    found = on_disk(CUT, disk, disk_actors.open_after_cut, image=str(tmp_path / "cut"))
    # Or the disk was quicker than the copy, and nothing was cut.
    assert set(found["before"]) < set(kept)
    assert set(found["after"]) == set(kept)
    assert (found["check"], found["journals"]) == ([], [])


@pytest.mark.parametrize("count", [1, 3, 150])
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_names_appear_with_their_content_and_directories_are_made(
    tmp_path: Path, count: int, place: str
) -> None:
    root = tmp_path
    if place == "memory":
        root = Path(f"/dev/shm/{tmp_path.parent.name}-{tmp_path.name}-{os.getpid()}")
        root.mkdir()
    try:
        names = []
        for number in range(count):
            (root / f"new{number}").write_text(str(number))
            names.append((str(root / f"new{number}"), str(root / f"in{number % 2}" / str(number))))
        name_files(names, lambda directory: directory.mkdir())
        assert [Path(name).read_text() for _, name in names] == [str(number) for number in range(count)]
        assert not list(root.glob("new*"))
    finally:
        if place == "memory":
            shutil.rmtree(root)
